"""What an export is asked for, and the checks that need nothing but the options themselves."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dragoman.export import ExportError
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
    replace: bool = False


def check_options(options: ExportOptions) -> None:
    """Raise ExportError before anything is read or computed."""
    missing = list(_missing(options))
    if missing:
        raise ExportError("\n".join(missing))
    if options.target_texts and options.precision != "int8":
        raise ExportError(f"--target-text works with int8 only, not with {options.precision}: leave --target-text out")
    check_place(options.out, options.replace)


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
