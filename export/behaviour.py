"""Behavioural cases: short texts with the answers that are right, and how many of them a model gets right.

A set is a file with one JSON object a line:

    {"id": "pt-en/labels/001", "class": "labels", "source_language": "pt", "target_language": "en",
     "source": "Cancelar", "accept": ["Cancel"]}

`accept` lists whole answers. Instead of it, or beside it, `must` lists groups of which one phrase each must be in the
answer, and `must_not` lists phrases that must not. Only logic is here; who answers is left to the caller.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from dragoman.export import ExportError

MAX_FALL = 2  # points of the pass rate of a class, against the bundle that is replaced
_KEYS = {"id", "class", "source_language", "target_language", "source", "accept", "must", "must_not", "note"}


@dataclass(frozen=True)
class Case:
    id: str
    kind: str  # its class
    source_language: str
    target_language: str
    source: str
    accept: tuple[str, ...] = ()
    must: tuple[tuple[str, ...], ...] = ()
    must_not: tuple[str, ...] = ()

    def passed(self, answer: str) -> bool:
        """Whether the answer is one of the accepted ones, or has all it must have and nothing that it must not."""
        if _without_full_stop(answer) in map(_without_full_stop, self.accept):
            return True
        return (
            bool(self.must)
            and all(any(_contains(answer, phrase) for phrase in group) for group in self.must)
            and not any(_contains(answer, phrase) for phrase in self.must_not)
        )


def _without_full_stop(text: str) -> str:
    return text.strip().removesuffix(".").rstrip()


def _contains(answer: str, phrase: str) -> bool:
    """Ignores case. A word at an end of the phrase must be whole: `5 mg` is not in `15 mg`, but `$50` is in `US$50`."""
    words = r"\s+".join(map(re.escape, phrase.split()))
    before = r"(?<!\w)" if re.match(r"\w", phrase) else ""
    behind = r"(?!\w)" if re.search(r"\w$", phrase) else ""
    return re.search(before + words + behind, answer, re.IGNORECASE) is not None


# Reading


def read_cases(paths: Iterable[Path]) -> list[Case]:
    """All cases of these files, and of the .jsonl files in these folders; raises ExportError with file and line."""
    cases: dict[str, Case] = {}
    for path in _files(paths):
        for number, line in _lines(path):
            where = f"{path}, line {number}"
            case = _parse(line, where)
            if case.id in cases:
                raise ExportError(f"{where}: the id {case.id!r} was used before; give every case its own id")
            cases[case.id] = case
    return list(cases.values())


def _files(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        found = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
        if not found:
            raise ExportError(f"{path} has no .jsonl file: give a behavioural set, or a folder of them")
        yield from found


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ExportError(f"cannot read {path}: {error.strerror}") from error
    for number, raw in enumerate(data.split(b"\n"), 1):
        try:
            line = raw.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise ExportError(f"{path}, line {number}: this is not UTF-8; convert the file first") from error
        if line.strip():
            yield number, line


def _parse(line: str, where: str) -> Case:
    record = _record(line, where)
    must = record.get("must", [])
    groups = must if isinstance(must, list) else [must]
    case = Case(
        id=_text(record, "id", where),
        kind=_text(record, "class", where),
        source_language=_text(record, "source_language", where),
        target_language=_text(record, "target_language", where),
        source=_text(record, "source", where),
        accept=_phrases(record.get("accept", []), f"{where}: 'accept' must be a list of texts"),
        must=tuple(_phrases(group, f"{where}: 'must' must be a list of lists of texts") for group in groups),
        must_not=_phrases(record.get("must_not", []), f"{where}: 'must_not' must be a list of texts"),
    )
    if not all(case.must):
        raise ExportError(f"{where}: 'must' has an empty group, which no answer can satisfy")
    if not case.accept and not case.must:
        raise ExportError(f"{where}: give 'accept' or 'must', or no answer could pass")
    return case


def _record(line: str, where: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except ValueError as error:
        raise ExportError(f"{where}: this is not JSON ({error})") from error
    if not isinstance(record, dict):
        raise ExportError(f"{where}: this is not a JSON object")
    unknown = sorted(record.keys() - _KEYS)
    if unknown:
        raise ExportError(f"{where}: there is no field {unknown[0]!r}; known are {', '.join(sorted(_KEYS))}")
    return record


def _text(record: Mapping[str, Any], key: str, where: str) -> str:
    if not _is_text(record.get(key)):
        raise ExportError(f"{where}: {key!r} must be a text that is not empty")
    return str(record[key])


def _phrases(value: object, problem: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(map(_is_text, value)):
        raise ExportError(f"{problem}, none of them empty")
    return tuple(value)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def set_record(paths: Iterable[Path]) -> dict[str, Any]:
    """Which set it was: names, and a digest of the content."""
    files, digest = list(_files(paths)), hashlib.sha256()
    for path in files:
        digest.update(path.read_bytes())
    return {"files": [path.name for path in files], "sha256": digest.hexdigest()}


# Counting


class Tally(NamedTuple):
    cases: int
    passed: int

    @property
    def percent(self) -> float:
        return round(100 * self.passed / self.cases, 1)

    def record(self) -> dict[str, Any]:
        return {"cases": self.cases, "passed": self.passed, "percent": self.percent}


def summarize(cases: Sequence[Case], answers: Sequence[str]) -> dict[str, Any]:
    """The evidence: how many passed, over all and by class, and the ids of those that failed."""
    failed = {case.id for case, answer in zip(cases, answers, strict=True) if not case.passed(answer)}
    classes = {}
    for kind in sorted({case.kind for case in cases}):
        ids = [case.id for case in cases if case.kind == kind]
        classes[kind] = Tally(len(ids), sum(one not in failed for one in ids)).record()
    whole = Tally(len(cases), len(cases) - len(failed)).record()
    return {**whole, "classes": classes, "failed": sorted(failed)}


def fallen_behind(before: object, now: Mapping[str, Any]) -> list[str]:
    """The classes whose pass rate is more than MAX_FALL points below that of earlier evidence, in words."""
    earlier, later = class_tallies(before), class_tallies(now)
    return [
        f"{kind} {later[kind].percent:g} % of {later[kind].cases}, before {old.percent:g} % of {old.cases}"
        for kind, old in earlier.items()
        if kind in later and _fell(old, later[kind])
    ]


def _fell(old: Tally, new: Tally) -> bool:
    # In whole numbers: the bar itself is not below the bar.
    return 100 * (old.passed * new.cases - new.passed * old.cases) > MAX_FALL * old.cases * new.cases


def class_tallies(evidence: object) -> dict[str, Tally]:
    """By class; empty where a manifest, which may come from anywhere, has no such evidence."""
    classes = evidence.get("classes") if isinstance(evidence, Mapping) else None
    found = {}
    for kind, counts in (classes if isinstance(classes, Mapping) else {}).items():
        cases, passed = (counts.get(key) if isinstance(counts, Mapping) else None for key in ("cases", "passed"))
        if type(cases) is int and type(passed) is int and 0 <= passed <= cases and cases > 0:
            found[kind] = Tally(cases, passed)
    return found


# Overlap with text that models are trained on


def is_short(case: Case) -> bool:
    return len(case.source.split()) <= 2


def listed_cases(cases: Iterable[Case], rows: Iterable[tuple[str, str]]) -> set[str]:
    """The ids of the short cases that stand in a list with a right answer, in either direction, ignoring case."""
    short: dict[str, list[Case]] = {}
    for case in filter(is_short, cases):
        short.setdefault(_folded(case.source), []).append(case)
    return {
        case.id
        for row in rows
        for source, answer in (row, row[::-1])
        for case in short.get(_folded(source), ())
        if case.passed(answer) or _folded(answer) in map(_folded, case.accept)
    }


def _folded(text: str) -> str:
    return _without_full_stop(text).casefold()
