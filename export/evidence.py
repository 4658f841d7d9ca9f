"""Evidence that any bundle can have, trained here or imported: scores on named texts, and behavioural cases.

Scores come from the graphs and need no bundle yet; behaviour comes from the finished bundle. The checks that compare
graphs with each other and with torch are in `export.verify`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dragoman.export import ExportError
from dragoman.export.behaviour import (
    Case,
    class_tallies,
    fallen_behind,
    is_short,
    listed_cases,
    read_cases,
    set_record,
    summarize,
)
from dragoman.export.sentence_files import SentenceReader, read_rows
from dragoman.export.served_answers import served_answers
from dragoman.export.verify import GraphTranslator, VerificationError
from dragoman.model.evaluate import score, score_by_length
from dragoman.service.bundles.manifest import MANIFEST, Bundle, BundleError, Pair, read_bundle

Announce = Callable[[str], None]


@dataclass(frozen=True)
class ScoredText:
    """A named test set, with the translations of other systems by their names."""

    name: str
    source: Path
    reference: Path
    beside: tuple[tuple[str, Path], ...] = ()


@dataclass(frozen=True)
class ScoredSentences:
    """The sentences of a test set that fit the model, line by line."""

    name: str
    ids: list[list[int]]
    sources: list[str]
    references: list[str]
    beside: Mapping[str, list[str]]  # by system

    @classmethod
    def read(cls, text: ScoredText, reader: SentenceReader) -> "ScoredSentences":
        files = [path for _, path in text.beside]
        ids, (sources, references, *others) = reader.read_columns(text.source, text.reference, *files)
        if not ids:
            raise ExportError(f"{text.source} has no usable sentence to score")
        systems = [system for system, _ in text.beside]
        return cls(text.name, ids, sources, references, dict(zip(systems, others, strict=True)))

    def measure(self, exported: GraphTranslator) -> dict[str, Any]:
        """BLEU and chrF of the bundle's greedy translations, in all and by source length, and of other systems."""
        beside = {system: self._scores(answers) for system, answers in self.beside.items()}
        return {"test_set": self.name, **self._scores(exported.texts(self.ids)), "beside": beside}

    def _scores(self, answers: list[str]) -> dict[str, Any]:
        by_length = score_by_length(self.sources, answers, self.references)
        return {"all": score(answers, self.references), "by_length": by_length}


@dataclass(frozen=True)
class Behaviour:
    """The cases of a behavioural set that belong to the bundle's pair."""

    cases: list[Case]
    record: Mapping[str, Any]  # which set it is, and how many short cases stand in lists

    @classmethod
    def read(cls, files: tuple[Path, ...], pair: Pair, lists: tuple[Path, ...]) -> "Behaviour":
        wanted = pair.source, pair.target
        cases = [case for case in read_cases(files) if (case.source_language, case.target_language) == wanted]
        if not cases:
            names = ", ".join(map(str, files))
            raise ExportError(f"{names} has no case from {pair.source} to {pair.target}: give a set of this pair")
        return cls(cases, set_record(files) | ({"overlap": _overlap(cases, lists)} if lists else {}))

    def measure(self, bundle: Bundle, announce: Announce) -> dict[str, Any]:
        """What the bundle answers, judged. Failed cases are announced, because the manifest has only their ids."""
        answers = served_answers(bundle, [case.source for case in self.cases])
        for case, answer in zip(self.cases, answers, strict=True):
            if not case.passed(answer):
                announce(f"failed {case.id}: {case.source} -> {answer}")
        found = {**self.record, **summarize(self.cases, answers)}
        announce(f"{found['passed']} of {found['cases']} behavioural cases passed")
        return found


def _overlap(cases: Sequence[Case], lists: Sequence[Path]) -> dict[str, Any]:
    listed = listed_cases(cases, (row for path in lists for row in read_rows(path)))
    return {
        "lists": [path.name for path in lists],
        "short_cases": sum(map(is_short, cases)),
        "listed": len(listed),
    }


def earlier_behaviour(out: Path) -> object:
    """The behavioural evidence of the bundle that has the name now; None where there is none to read."""
    if not (out / MANIFEST).is_file():
        return None
    try:
        return read_bundle(out, check_hashes=False).evidence.get("behaviour")
    except BundleError:
        return None  # a broken bundle may be replaced by any other


def check_behaviour_is_measured(out: Path) -> None:
    """For an export without a set: refuse to replace a bundle whose behaviour is known."""
    if class_tallies(earlier_behaviour(out)):
        raise ExportError(
            f"the behaviour of the bundle in {out} was measured: give --behaviour, so that the new one can be compared "
            "with it, or --accept-worse"
        )


def check_not_worse(out: Path, found: dict[str, Any]) -> None:
    worse = fallen_behind(earlier_behaviour(out), found)
    if worse:
        raise VerificationError(
            f"the behaviour is worse than that of the bundle in {out}: {'; '.join(worse)}; "
            "give --accept-worse to replace it all the same"
        )
