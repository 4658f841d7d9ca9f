"""Parallel text -> filtered, tokenized pairs. Batching is left to `batches.py`.

A corpus is two line-aligned files (`a.pt,a.en`) or one TSV, with optional modifiers after semicolons:
`machine-pt.tsv;machine=pt;weight=0.5` (which side was made by a machine; how often a pair is seen per epoch).
The columns of a TSV are in the order of the languages, or its first line names them, as the exporter wants it.
"""

import math
import random
import re
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from model.tokenizer import NUM_PLACEHOLDERS, Tokenizer, normalize

Pair = tuple[str, str]
MAX_LENGTH_RATIO = 3.0  # in words, and only where the longer side has more than SHORT_WORDS
SHORT_WORDS = 6
MAX_WORDS = 100


class CorpusError(Exception):
    """The text cannot be used as it is; the message says what to do."""


@dataclass(frozen=True)
class CorpusSpec:
    files: tuple[Path, ...]  # two aligned files, or one TSV
    weight: float = 1.0
    machine: str | None = None  # the language that a machine wrote
    into: str | None = None  # learned into this language only; None: in every direction of the run

    @staticmethod
    def parse(text: str) -> "CorpusSpec":
        files, *modifiers = text.split(";")
        weight, named = 1.0, dict[str, str]()
        for modifier in modifiers:
            key, _, value = modifier.partition("=")
            if key == "weight":
                weight = parse_weight(value, text)
            elif key in ("machine", "into"):
                named[key] = value
            else:
                raise CorpusError(
                    f"unknown modifier {modifier!r} in corpus {text!r}; "
                    "use weight=NUMBER, machine=LANGUAGE or into=LANGUAGE"
                )
        paths = tuple(Path(name) for name in files.split(","))
        if len(paths) > 2 or (len(paths) == 1 and paths[0].suffix != ".tsv"):
            raise CorpusError(f"corpus {text!r} must be two files with a comma between, or one .tsv")
        return CorpusSpec(paths, weight, **named)


def parse_weight(value: str, text: str) -> float:
    try:
        weight = float(value)
    except ValueError:
        raise CorpusError(f"the weight {value!r} of corpus {text!r} is not a number") from None
    if not 0 < weight < math.inf:  # nor is NaN
        raise CorpusError(f"the weight {value} of corpus {text!r} must be above 0 and finite")
    return weight


def read_lines(path: Path) -> list[str]:
    text = read_text(path)
    if not text.strip():
        raise CorpusError(f"{path} is empty")
    return text.removesuffix("\n").split("\n")


def read_text(path: Path) -> str:
    """All of a file, without the byte order mark that some programs write first: it would be part of a sentence."""
    try:
        data = path.read_bytes().removeprefix(BOM_UTF8)
    except OSError as error:
        raise CorpusError(f"cannot read {path}: {error.strerror}") from error
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise CorpusError(
            f"{path}, line {line}: byte {data[error.start]:#04x} is not UTF-8; convert the file first"
        ) from error


def read_pairs(files: Sequence[Path], languages: Sequence[str] = ()) -> list[Pair]:
    """The pairs of two aligned files, or of a TSV; the first side is in the first of the two languages."""
    if len(files) == 2:
        first, second = read_lines(files[0]), read_lines(files[1])
        if len(first) != len(second):
            raise CorpusError(
                f"{files[0]} has {len(first)} lines and {files[1]} has {len(second)}: "
                "line N of one must translate line N of the other"
            )
        return [(a.strip(), b.strip()) for a, b in zip(first, second, strict=True)]
    return read_table(files[0], languages)


def read_table(path: Path, languages: Sequence[str]) -> list[Pair]:
    pairs = []
    for number, line in enumerate(read_lines(path), 1):
        columns = line.split("\t")
        if len(columns) != 2:
            raise CorpusError(f"{path}, line {number}: {len(columns)} columns, a TSV corpus has 2")
        pairs.append((columns[0].strip(), columns[1].strip()))
    header, *rows = pairs
    if not names_columns(header, languages):
        return pairs
    if not rows:
        raise CorpusError(f"{path} names its columns and has no line below")
    return rows if header[0] == languages[0] else [(first, second) for second, first in rows]


def names_columns(columns: Sequence[str], languages: Sequence[str]) -> bool:
    return sorted(columns) == sorted(languages)


def has_header(path: Path, languages: Sequence[str]) -> bool:
    return names_columns([column.strip() for column in read_lines(path)[0].split("\t")], languages)


def filter_pairs(pairs: Iterable[Pair]) -> tuple[list[Pair], Counter[str]]:
    """Keep what can teach; the counter says how many pairs were dropped, and why."""
    kept: list[Pair] = []
    dropped: Counter[str] = Counter()
    seen: set[Pair] = set()
    for pair in pairs:
        reason = reason_to_drop(pair)
        if reason is None and pair in seen:
            reason = "duplicate"
        if reason is None:
            seen.add(pair)
            kept.append(pair)
        else:
            dropped[reason] += 1
    return kept, dropped


def reason_to_drop(pair: Pair) -> str | None:
    if not pair[0] or not pair[1]:
        return "empty"
    shorter, longer = sorted(len(side.split()) for side in pair)
    if longer > MAX_WORDS:
        return "too long"
    if longer > SHORT_WORDS and longer > MAX_LENGTH_RATIO * shorter:
        return "length ratio"
    return None


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


@dataclass(frozen=True)
class TokenLists:
    """Many token lists in one flat array: list i is `flat[starts[i]:starts[i + 1]]`."""

    flat: np.ndarray  # [tokens]
    starts: np.ndarray  # [lists + 1]

    @staticmethod
    def of(lists: Sequence[Sequence[int]]) -> "TokenLists":
        starts = np.zeros(len(lists) + 1, np.int64)
        np.cumsum([len(ids) for ids in lists], out=starts[1:])
        flat = np.fromiter((i for ids in lists for i in ids), np.int32, count=int(starts[-1]))
        return TokenLists(flat, starts)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, index: int) -> np.ndarray:
        return self.flat[self.starts[index] : self.starts[index + 1]]

    def lengths(self) -> np.ndarray:
        return np.diff(self.starts)  # [lists]


@dataclass(frozen=True)
class Corpus:
    """Tokenized pairs: plain ones, and some again with placeholders in them."""

    first: TokenLists
    second: TokenLists
    num_plain: int  # pairs from here on carry placeholders
    weight: float
    machine: str | None
    into: str | None = None

    def fits(self, max_tokens: int) -> np.ndarray:
        """[pairs]: which have no more tokens than this on either side."""
        return np.maximum(self.first.lengths(), self.second.lengths()) <= max_tokens


def tokenize(
    pairs: Sequence[Pair], spec: CorpusSpec, tokenizer: Tokenizer, placeholder_fraction: float, seed: int
) -> Corpus:
    rng = random.Random(seed)
    sides = [tokenizer.encode_batch([pair[side] for pair in pairs]) for side in (0, 1)]
    for pair in pairs:
        if rng.random() < placeholder_fraction:
            for side, chunks in zip(
                sides, with_placeholders((normalize(pair[0]), normalize(pair[1])), rng), strict=True
            ):
                side.append(tokenizer.encode_chunks(chunks))
    return Corpus(TokenLists.of(sides[0]), TokenLists.of(sides[1]), len(pairs), spec.weight, spec.machine, spec.into)
