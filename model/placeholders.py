"""Pairs that teach copying: names and numbers become placeholders on both sides."""

import random
import re
from collections import Counter

from dragoman.model.filters import Pair
from dragoman.model.tokenizer import NUM_PLACEHOLDERS

# Chunks of a text with the numbers of placeholders between them, as `Tokenizer.encode_chunks` takes them.
Chunks = list[str | int]
WORD = re.compile(r"[\w'-]+")


def with_placeholders(pair: Pair, rng: random.Random) -> tuple[Chunks, Chunks]:
    """Teach copying: names and numbers that both sides share become placeholders, or else one is added."""
    shared = shared_words(pair)
    rng.shuffle(shared)
    chosen = shared[: rng.randint(1, 4)]
    start = 0 if rng.random() < 0.6 else rng.randrange(NUM_PLACEHOLDERS - 4)
    if not chosen:
        return add_placeholder(pair, start, rng)
    chosen.sort(key=WORD.findall(pair[0]).index)
    numbers = {word: start + i for i, word in enumerate(chosen)}
    return replace_words(pair[0], numbers), replace_words(pair[1], numbers)


def shared_words(pair: Pair) -> list[str]:
    first, second = (Counter(WORD.findall(side)) for side in pair)
    return sorted(w for w, n in first.items() if n == 1 and second.get(w) == 1 and (w[0].isupper() or w.isdigit()))


def replace_words(text: str, numbers: dict[str, int]) -> Chunks:
    chunks: Chunks = []
    position = 0
    for match in WORD.finditer(text):
        if match.group() in numbers:
            chunks += [text[position : match.start()], numbers[match.group()]]
            position = match.end()
    return [*chunks, text[position:]]


def add_placeholder(pair: Pair, number: int, rng: random.Random) -> tuple[Chunks, Chunks]:
    before, after = rng.choice([("", " "), (" ", ""), (" (", ")"), (": ", ""), (", ", "")])
    if before == "":
        return ["", number, after + pair[0]], ["", number, after + pair[1]]
    second = number + 1 if rng.random() < 0.2 else None
    tail: Chunks = [number, after] if second is None else [number, after + " ", second, ""]
    return [pair[0] + before, *tail], [pair[1] + before, *tail]
