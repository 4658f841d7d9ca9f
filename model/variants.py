"""The same pair as careless people write it: a student that has only seen clean text breaks at a missing accent.

Most variants change the source alone, so that the network learns to read it; those that change how a label looks change
both sides alike.
"""

import random
import unicodedata
from collections.abc import Callable

from dragoman.model.filters import Pair

QUOTES = (('"', '"'), ("“", "”"), ("'", "'"), ("«", "»"))
STOPS = ".!?…"
MAX_LABEL_WORDS = 4


def vary(source: str, target: str, rng: random.Random) -> Pair | None:
    """Source and target of one variant, or None where the one that was drawn changes nothing."""
    changed = rng.choices(list(VARIANTS), weights=list(VARIANTS.values()))[0](source, target, rng)
    return None if changed == (source, target) else changed


def in_small_letters(source: str, target: str, rng: random.Random) -> Pair:
    """`onde fica a estação?` is answered like a sentence; a label stays a label on both sides."""
    if len(source.split()) <= MAX_LABEL_WORDS and source[-1:] not in STOPS:
        return source.lower(), lower_first(target)
    return source.lower(), target


def lower_first(text: str) -> str:
    """Only the first letter, and not of an abbreviation: what else is written large in a target is a name."""
    return text if text[1:2].isupper() else text[:1].lower() + text[1:]


def with_capital(source: str, target: str, rng: random.Random) -> Pair:
    return source[:1].upper() + source[1:], target[:1].upper() + target[1:]


def without_stop(source: str, target: str, rng: random.Random) -> Pair:
    if source[-1:] == target[-1:] and source[-1:] in (".", "!"):
        return source[:-1], target[:-1]
    return source, target


def with_stop(source: str, target: str, rng: random.Random) -> Pair:
    if source[-1:].isalnum() and target[-1:].isalnum():
        return f"{source}.", f"{target}."
    return source, target


def without_accents(source: str, target: str, rng: random.Random) -> Pair:
    plain = "".join(c for c in unicodedata.normalize("NFD", source) if not unicodedata.combining(c))
    return unicodedata.normalize("NFC", plain), target


def in_quotes(source: str, target: str, rng: random.Random) -> Pair:
    before, after = rng.choice(QUOTES)
    return f"{before}{source}{after}", f"{before}{target}{after}"


def with_typo(source: str, target: str, rng: random.Random) -> Pair:
    """Two letters of a longer word change places, or one is lost or doubled."""
    long = [i for i, word in enumerate(source.split(" ")) if len(word) > 4 and word.isalpha() and word.islower()]
    if not long:
        return source, target
    words = source.split(" ")
    i = rng.choice(long)
    at = rng.randrange(1, len(words[i]) - 2)
    a, b = words[i][at], words[i][at + 1]
    words[i] = words[i][:at] + rng.choice([b + a, a, a + a + b]) + words[i][at + 2 :]
    return " ".join(words), target


VARIANTS: dict[Callable[[str, str, random.Random], Pair], float] = {
    in_small_letters: 4,
    with_capital: 2,
    without_stop: 3,
    with_stop: 1,
    without_accents: 3,
    in_quotes: 1,
    with_typo: 2,
}
