"""What an export is asked for, and the checks that need nothing but the options themselves."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dragoman.export import ExportError
from dragoman.export.evidence import ScoredText, check_behaviour_is_measured
from dragoman.export.publish import check_place
from dragoman.service.bundles.manifest import Limits, Precision

MAX_LOSS = 0.5  # of BLEU, and of chrF, from fp32 to the exported graphs
MIN_PARITY_SENTENCES = 200
DEFAULT_LIMITS = Limits(max_source_tokens=256, max_new_tokens=256)


@dataclass(frozen=True)
class ExportOptions:
    checkpoint: Path
    out: Path
    precision: Precision = "int8"
    golden: Path | None = None
    calibration: Path | None = None
    tests: tuple[tuple[Path, Path], ...] = ()
    target_texts: tuple[Path, ...] = ()  # text that the model learned to write; empty: any token may come out
    sources: Path | None = None  # where the training text comes from, for the model card
    pair: str | None = None  # the pair to export, from a model of several
    name: str | None = None
    version: str | None = None
    limits: Limits = DEFAULT_LIMITS
    default_beam_size: int = 1
    parity_sentences: int = MIN_PARITY_SENTENCES
    invariance_sentences: int = 1000
    calibration_sentences: int = 512
    max_loss: float = MAX_LOSS
    behaviour: tuple[Path, ...] = ()  # sets of behavioural cases, or folders of them
    behaviour_overlap: tuple[Path, ...] = ()  # lists in which short cases may stand
    accept_worse: bool = False  # than the bundle that is replaced, in a class of behavioural cases
    scores: tuple[tuple[str, Path, Path], ...] = ()  # name, sources and references of a test set for the model card
    beside: tuple[tuple[str, str, Path], ...] = ()  # name of such a test set, another system, its translations
    about: Path | None = None  # which text the model suits, for the model card
    replace: bool = False

    @property
    def scored_texts(self) -> tuple[ScoredText, ...]:
        return tuple(
            ScoredText(name, source, reference, tuple((system, path) for of, system, path in self.beside if of == name))
            for name, source, reference in self.scores
        )


def check_options(options: ExportOptions) -> None:
    """Raise ExportError before anything is read or computed."""
    missing = list(_missing(options))
    if missing:
        raise ExportError("\n".join(missing))
    if options.target_texts and options.precision != "int8":
        raise ExportError(f"--target-text works with int8 only, not with {options.precision}: leave --target-text out")
    _check_scores(options)
    if options.behaviour_overlap and not options.behaviour:
        raise ExportError("--behaviour-overlap needs --behaviour FILE, whose cases are looked up in the lists")
    check_place(options.out, options.replace)
    if not options.behaviour and not options.accept_worse:
        check_behaviour_is_measured(options.out)


def _check_scores(options: ExportOptions) -> None:
    names = [name for name, _, _ in options.scores]
    for name in names:
        if names.count(name) > 1:
            raise ExportError(f"--score {name} is given twice: give every test set its own name")
    for name, label, _ in options.beside:
        if name not in names:
            raise ExportError(f"--beside {name} {label}: there is no --score {name} SRC REF")


def _missing(options: ExportOptions) -> Iterator[str]:
    """All missing options at once, so that one failed start tells of all of them."""
    if not options.tests:
        yield (
            f"give at least one --verify SRC REF, {options.parity_sentences} sentences or more: "
            "a bundle carries the evidence of its own export"
        )
    if options.golden is None:
        yield "give --golden FILE with source sentences that servers replay when they load the bundle"
    if options.precision == "int8" and options.calibration is None:
        yield "give --calibration FILE with source sentences like those to be translated (not the test set)"
