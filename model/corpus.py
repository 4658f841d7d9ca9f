"""Parallel text: where its two sides lie, and its pairs, one at a time.

A corpus is two line-aligned sides (`a.pt,a.en`) or one TSV, with optional modifiers after semicolons:
`machine-pt.tsv;machine=pt;weight=0.5` (which side was made by a machine; how often a pair is seen per epoch;
`into=en;vary=0.2` teaches one direction, and shows a fifth of its pairs again as careless people write them).
A side may be one column of a table: `teacher.pt,real.tsv#2`. Files may be packed (`.gz`, `.zst`).
The columns of a TSV are in the order of the languages, or its first line names them, as the exporter wants it.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice, zip_longest
from pathlib import Path

from dragoman.model.filters import Pair
from dragoman.model.text import CorpusError, lines, unpacked_suffix


@dataclass(frozen=True)
class Side:
    """One side of a corpus: a file of sentences, or a column of a table."""

    path: Path
    column: int | None = None  # counted from 1; None: the whole line

    @staticmethod
    def parse(text: str) -> "Side":
        name, mark, column = text.rpartition("#")
        if not mark:
            return Side(Path(text))
        if not column.isdigit() or int(column) < 1:
            raise CorpusError(f"{text!r}: a column is a number from 1 on, such as {name}#2")
        return Side(Path(name), int(column))

    @property
    def name(self) -> str:
        return self.path.name if self.column is None else f"{self.path.name}#{self.column}"

    def sentences(self) -> Iterator[str]:
        for number, line in enumerate(lines(self.path), 1):
            if self.column is None:
                yield line.strip()
                continue
            columns = line.split("\t")
            if len(columns) < self.column:
                raise CorpusError(f"{self.path}, line {number}: {len(columns)} columns, there is no {self.column}")
            yield columns[self.column - 1].strip()


@dataclass(frozen=True)
class CorpusSpec:
    sides: tuple[Side, ...]  # two aligned sides, or one TSV
    weight: float = 1.0
    machine: str | None = None  # the language that a machine wrote
    into: str | None = None  # learned into this language only; None: in every direction of the run
    vary: float = 0.0  # share of the pairs that are shown again as careless people write them

    @staticmethod
    def parse(text: str) -> "CorpusSpec":
        files, *modifiers = text.split(";")
        numbers, named = dict[str, float](), dict[str, str]()
        for modifier in modifiers:
            key, _, value = modifier.partition("=")
            if key in ("weight", "vary"):
                numbers[key] = parse_number(key, value, text)
            elif key in ("machine", "into"):
                named[key] = value
            else:
                raise CorpusError(
                    f"unknown modifier {modifier!r} in corpus {text!r}; "
                    "use weight=NUMBER, vary=NUMBER, machine=LANGUAGE or into=LANGUAGE"
                )
        sides = tuple(Side.parse(name) for name in files.split(","))
        if len(sides) > 2 or (len(sides) == 1 and not is_table(sides[0])):
            raise CorpusError(f"corpus {text!r} must be two files with a comma between, or one .tsv")
        if "vary" in numbers and "into" not in named:
            raise CorpusError(f"corpus {text!r} varies its sources: say which side that is with into=LANGUAGE")
        return CorpusSpec(sides, **numbers, **named)  # type: ignore[arg-type]

    @property
    def name(self) -> str:
        return " + ".join(side.name for side in self.sides)


def is_table(side: Side) -> bool:
    return side.column is None and unpacked_suffix(side.path) == ".tsv"


def parse_number(key: str, value: str, text: str) -> float:
    try:
        number = float(value)
    except ValueError:
        raise CorpusError(f"the {key} {value!r} of corpus {text!r} is not a number") from None
    if not 0 < number < math.inf:  # nor is NaN
        raise CorpusError(f"the {key} {value} of corpus {text!r} must be above 0 and finite")
    return number


def pairs_of(spec: CorpusSpec, languages: Sequence[str] = ()) -> Iterator[Pair]:
    """The pairs of a corpus; the first side is in the first of the two languages."""
    if len(spec.sides) == 1:
        return table_pairs(spec.sides[0].path, languages)
    return aligned_pairs(*spec.sides)


def read_pairs(files: Sequence[Path], languages: Sequence[str] = ()) -> list[Pair]:
    """All pairs of a small corpus."""
    return list(pairs_of(CorpusSpec(tuple(Side(path) for path in files)), languages))


def aligned_pairs(first: Side, second: Side) -> Iterator[Pair]:
    sides = first.sentences(), second.sentences()
    for number, (a, b) in enumerate(zip_longest(*sides)):
        if a is None or b is None:
            rest = 1 + sum(1 for _ in (sides[1] if a is None else sides[0]))
            counts = (number, number + rest) if a is None else (number + rest, number)
            raise CorpusError(
                f"{first.path} has {counts[0]} lines and {second.path} has {counts[1]}: "
                "line N of one must translate line N of the other"
            )
        yield a, b


def table_pairs(path: Path, languages: Sequence[str]) -> Iterator[Pair]:
    rows = table_rows(path)
    header = list(islice(rows, 1))
    if not header or not names_columns(header[0], languages):
        return chain(header, rows)
    below = list(islice(rows, 1))
    if not below:
        raise CorpusError(f"{path} names its columns and has no line below")
    rows = chain(below, rows)
    return rows if header[0][0] == languages[0] else ((first, second) for second, first in rows)


def table_rows(path: Path) -> Iterator[Pair]:
    for number, line in enumerate(lines(path), 1):
        columns = line.split("\t")
        if len(columns) != 2:
            raise CorpusError(f"{path}, line {number}: {len(columns)} columns, a TSV corpus has 2")
        yield columns[0].strip(), columns[1].strip()


def names_columns(columns: Sequence[str], languages: Sequence[str]) -> bool:
    return sorted(columns) == sorted(languages)


def has_header(path: Path, languages: Sequence[str]) -> bool:
    first = next(lines(path))
    return names_columns([column.strip() for column in first.split("\t")], languages)
