"""Evidence that any bundle can have, trained here or imported: scores on named texts, and behavioural cases.

Scores come from the graphs and need no bundle yet; behaviour comes from the finished bundle. The checks that compare
graphs with each other and with torch are in `export.verify`.
"""

from collections.abc import Callable, Iterable, Sequence
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
from dragoman.export.sentences import SentenceReader, read_rows
from dragoman.export.served_answers import served_answers
from dragoman.export.verify import GraphTranslator, VerificationError
from dragoman.model.evaluate import score, score_by_length
from dragoman.service.bundles.manifest import MANIFEST, Bundle, BundleError, Pair, read_bundle

Announce = Callable[[str], None]


@dataclass(frozen=True)
class ScoredText:
    """A named test set, with the translations of other systems by their label."""

    name: str
    source: Path
    reference: Path
    beside: tuple[tuple[str, Path], ...] = ()


def score_texts(exported: GraphTranslator, reader: SentenceReader, texts: Iterable[ScoredText]) -> list[dict[str, Any]]:
    """BLEU and chrF of the bundle's greedy translations, whole and by source length, and those of other systems."""
    return [_scored(exported, reader, text) for text in texts]


def _scored(exported: GraphTranslator, reader: SentenceReader, text: ScoredText) -> dict[str, Any]:
    labels, files = [label for label, _ in text.beside], [path for _, path in text.beside]
    ids, columns = reader.read_columns(text.source, text.reference, *files)
    if not ids:
        raise ExportError(f"{text.source} has no usable sentence to score")
    sources, references, *others = columns
    return {
        "test_set": text.name,
        **_scores(sources, exported.texts(ids), references),
        "beside": {label: _scores(sources, answers, references) for label, answers in zip(labels, others, strict=True)},
    }


def _scores(sources: Sequence[str], answers: Sequence[str], references: Sequence[str]) -> dict[str, Any]:
    return {"all": score(answers, references), "by_length": score_by_length(sources, answers, references)}


@dataclass(frozen=True)
class Behaviour:
    """The cases of a set that are of the bundle's pair, and the lists that they may overlap with."""

    files: tuple[Path, ...]
    cases: list[Case]
    lists: tuple[Path, ...]

    @classmethod
    def read(cls, files: tuple[Path, ...], pair: Pair, lists: tuple[Path, ...]) -> "Behaviour":
        wanted = pair.source, pair.target
        cases = [case for case in read_cases(files) if (case.source_language, case.target_language) == wanted]
        if not cases:
            names = ", ".join(map(str, files))
            raise ExportError(f"{names} has no case from {pair.source} to {pair.target}: give a set of this pair")
        return cls(files, cases, lists)

    def measure(self, bundle: Bundle, announce: Announce) -> dict[str, Any]:
        """What the bundle answers, judged. Failed cases are announced, because the manifest has only their ids."""
        pair = bundle.pairs[0]
        answers = served_answers(bundle.path, pair.source, pair.target, [case.source for case in self.cases])
        for case, answer in zip(self.cases, answers, strict=True):
            if not case.passed(answer):
                announce(f"failed {case.id}: {case.source} -> {answer}")
        found = {**set_record(self.files), **summarize(self.cases, answers)}
        announce(f"{found['passed']} of {found['cases']} behavioural cases passed")
        return found | ({"overlap": self._overlap()} if self.lists else {})

    def _overlap(self) -> dict[str, Any]:
        rows = (row for path in self.lists for row in read_rows(path))
        listed = listed_cases(self.cases, rows)
        return {
            "lists": [path.name for path in self.lists],
            "short_cases": sum(map(is_short, self.cases)),
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
