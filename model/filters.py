"""Which pairs cannot teach, and why."""

import re
from collections import Counter

Pair = tuple[str, str]
MAX_LENGTH_RATIO = 3.0  # in words, and only where the longer side has more than SHORT_WORDS
SHORT_WORDS = 6
MAX_WORDS = 100
CHARACTERS_PER_WORD = 2  # of a script that writes no spaces: Chinese words have 1.5 to 2 characters, Thai ones more
# Han, kana, Thai, Lao, Myanmar, Khmer, Tibetan: their words are not separated, so splitting at spaces counts sentences.
WITHOUT_SPACES = re.compile(
    "[\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufaff\U00020000-\U0003ffff]"
)
DIGIT = re.compile(r"\d")
REPEATED = re.compile(r"\b(\w[\w' -]{3,60}?)(?:[\s,.;]+\1\b){3,}")  # the same words four times in a row


def reason_to_drop(pair: Pair, machine_made: bool = False) -> str | None:
    """None when the pair can teach. A machine's sentence is held to more: it may stutter or lose a number."""
    if not pair[0] or not pair[1]:
        return "empty"
    shorter, longer = sorted(map(count_words, pair))
    if longer > MAX_WORDS:
        return "too long"
    if longer > SHORT_WORDS and longer > MAX_LENGTH_RATIO * shorter:
        return "length ratio"
    return machine_fault(pair) if machine_made else None


def machine_fault(pair: Pair) -> str | None:
    if Counter(DIGIT.findall(pair[0])) != Counter(DIGIT.findall(pair[1])):
        return "other digits"
    if bool(REPEATED.search(pair[0])) != bool(REPEATED.search(pair[1])):
        return "repeats itself"
    return None


def count_words(text: str) -> int:
    if text.isascii():
        return len(text.split())
    spaceless = len(WITHOUT_SPACES.findall(text))
    if not spaceless:
        return len(text.split())
    return len(WITHOUT_SPACES.sub(" ", text).split()) + -(-spaceless // CHARACTERS_PER_WORD)
