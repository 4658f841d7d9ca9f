"""The sentences that benchmarks translate: a file of the user's or the repository's own, joined to make long ones.

Lengths are source tokens without the end of sentence. What is done with the sentences is left to the benchmarks.
"""

import csv
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path

from dragoman.model.tokenizer import Tokenizer

OWN = Path(__file__).parents[1] / "tests" / "data" / "sentences.tsv"
LEFT_OUT = ("placeholders", "very_long")  # of our own: they test other things than speed


def sentences(path: Path | None, limit: int, language: str = "pt") -> list[str]:
    """At most so many, evenly from the whole file."""
    texts = _own(language) if path is None else [line for line in path.read_text("utf-8").splitlines() if line.strip()]
    return evenly(texts, limit)


def _own(language: str) -> list[str]:
    with OWN.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    return [row[language] for row in rows if row["category"] not in LEFT_OUT]


def evenly(texts: Sequence[str], limit: int) -> list[str]:
    if len(texts) <= limit:
        return list(texts)
    return [texts[i * len(texts) // limit] for i in range(limit)]


def long_ones(tokenizer: Tokenizer, texts: Sequence[str], count: int, least: int = 40, most: int = 80) -> list[str]:
    """Neighbours joined until they have `least` tokens; those that came out longer than `most` are left out."""
    found: list[str] = []
    pending = ""
    for text in cycle(texts):
        pending = f"{pending} {text}".strip()
        length = len(tokenizer.encode(pending))
        if length >= least:
            if length <= most:
                found.append(pending)
            pending = ""
        if len(found) == count:
            return found
    raise AssertionError("a cycle does not end")


def of_length(tokenizer: Tokenizer, texts: Sequence[str], tokens: int, count: int) -> list[str]:
    """Sentences with exactly so many tokens: found in the file, or joined from its beginning and cut at a word."""
    exact = [text for text in texts if len(tokenizer.encode(text)) == tokens]
    start = 0
    while len(exact) < count:
        assert start < 40 * len(texts), f"these texts do not give {count} sentences of {tokens} tokens"
        made = _cut(tokenizer, texts, start, tokens)
        exact += [made] if made is not None else []
        start += 1
    return exact[:count]


def _cut(tokenizer: Tokenizer, texts: Sequence[str], start: int, tokens: int) -> str | None:
    """Words from a sentence on (and from a word of it on, where all sentences were tried) up to so many tokens."""
    first, skipped = start % len(texts), start // len(texts)
    words: list[str] = []
    for i in range(len(texts)):
        words += texts[(first + i) % len(texts)].split()
        if len(words) - skipped >= tokens:  # a word is at least a token
            break
    for end in range(skipped + 1, len(words) + 1):
        text = " ".join(words[skipped:end])
        length = len(tokenizer.encode(text))
        if length >= tokens:
            return text if length == tokens else None
    return None
