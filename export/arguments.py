"""The command line of `dragoman-export CHECKPOINT OUT --golden FILE --verify SRC REF [--precision int8] …`"""

import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console

from dragoman.export import ExportError
from dragoman.export.exporter import export
from dragoman.export.option_values import grouped, repeat_options
from dragoman.export.options import DEFAULT_LIMITS, MIN_PARITY_SENTENCES, ExportOptions
from dragoman.export.verify import VerificationError
from dragoman.model.saved import SavedModelError
from dragoman.service.bundles.manifest import BundleError, Limits, Precision

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
SEVERAL_WORDS = {"--verify": 2, "--score": 3, "--beside": 3, "--behaviour-overlap": None}

Checkpoint = Annotated[Path, typer.Argument(help="a saved model, .safetensors")]
Out = Annotated[Path, typer.Argument(help="the bundle's directory")]
PrecisionName = Annotated[Precision, typer.Option(help="int8 for CPUs, fp16 for GPUs, fp32 for either")]
Calibration = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="source sentences, such as those trained on; int8 scales are chosen by them"),
]
Golden = Annotated[
    Path | None, typer.Option(metavar="FILE", help="source sentences that servers replay when they load the bundle")
]
Verify = Annotated[
    list[Path],
    typer.Option(metavar="SRC REF", help=f"a test set, repeatable; {MIN_PARITY_SENTENCES} sentences or more in all"),
]
TargetText = Annotated[
    list[Path],
    typer.Option(metavar="FILE", help="text that an int8 model learned to write, repeatable; no other token comes out"),
]
Sources = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="for the model card: where the training text comes from, and its licences"),
]
PairName = Annotated[str | None, typer.Option(help="the pair to export, from a model of several")]
Name = Annotated[str | None, typer.Option(help="by default the pair, such as pt-en")]
Version = Annotated[str | None, typer.Option(help="by default made from the content")]
MaxSourceTokens = Annotated[int, typer.Option(min=1, metavar="N", help="longer text is split")]
MaxNewTokens = Annotated[int, typer.Option(min=1, metavar="N", help="the longest translation")]
BeamSize = Annotated[int, typer.Option(min=1, metavar="N", help="the beam that the bundle recommends; 1 is greedy")]
ParitySentences = Annotated[
    int,
    typer.Option(
        min=MIN_PARITY_SENTENCES,
        metavar="N",
        help="how many of --verify go through torch and ONNX Runtime both; this takes most of the time",
    ),
]
BehaviourSet = Annotated[
    list[Path],
    typer.Option("--behaviour", metavar="FILE", help="cases with known answers: .jsonl, or a folder; repeatable"),
]
BehaviourOverlap = Annotated[
    list[Path],
    typer.Option(metavar="FILE …", help="lists of texts and translations, .tsv, in which short cases are counted"),
]
AcceptWorse = Annotated[
    bool,
    typer.Option(
        "--accept-worse",
        help="replace a bundle even if the new one passes fewer cases of a class, or has no --behaviour",
    ),
]
Score = Annotated[
    list[str],
    typer.Option(metavar="NAME SRC REF", help="a test set that the model card shows scores of, repeatable"),
]
Beside = Annotated[
    list[str],
    typer.Option(
        metavar="NAME SYSTEM HYP", help="another system's translations of a --score set; its scores are shown beside"
    ),
]
About = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Markdown for the top of the model card: which text the model suits, which not"),
]
Replace = Annotated[bool, typer.Option("--replace", help="put the new bundle in the place of an old one")]


@app.command(help="Turn a saved model into a bundle.")
def command(
    context: typer.Context,
    checkpoint: Checkpoint,
    out: Out,
    precision: PrecisionName = "int8",
    calibration: Calibration = None,
    golden: Golden = None,
    verify: Verify = [],  # noqa: B006
    target_text: TargetText = [],  # noqa: B006
    sources: Sources = None,
    pair: PairName = None,
    name: Name = None,
    version: Version = None,
    max_source_tokens: MaxSourceTokens = DEFAULT_LIMITS.max_source_tokens,
    max_new_tokens: MaxNewTokens = DEFAULT_LIMITS.max_new_tokens,
    default_beam_size: BeamSize = 1,
    parity_sentences: ParitySentences = MIN_PARITY_SENTENCES,
    behaviour: BehaviourSet = [],  # noqa: B006
    behaviour_overlap: BehaviourOverlap = [],  # noqa: B006
    accept_worse: AcceptWorse = False,
    score: Score = [],  # noqa: B006
    beside: Beside = [],  # noqa: B006
    about: About = None,
    replace: Replace = False,
) -> None:
    run: Callable[[ExportOptions], None] = context.obj
    options = ExportOptions(
        checkpoint,
        out,
        precision,
        golden=golden,
        calibration=calibration,
        tests=tuple((source, reference) for source, reference in grouped(verify, 2)),
        target_texts=tuple(target_text),
        sources=sources,
        pair=pair,
        name=name,
        version=version,
        limits=Limits(max_source_tokens, max_new_tokens),
        default_beam_size=default_beam_size,
        parity_sentences=parity_sentences,
        behaviour=tuple(behaviour),
        behaviour_overlap=tuple(behaviour_overlap),
        accept_worse=accept_worse,
        scores=tuple((name, Path(source), Path(reference)) for name, source, reference in grouped(score, 3)),
        beside=tuple((name, system, Path(answers)) for name, system, answers in grouped(beside, 3)),
        about=about,
        replace=replace,
    )
    run(options)


def run_export(options: ExportOptions) -> None:
    torch.set_num_threads(1)  # sums in another order would give other bytes
    console = Console(stderr=True)
    try:
        with _ended_by_sigterm():
            export(options, console)
    except (ExportError, SavedModelError, VerificationError, BundleError) as error:
        console.print(str(error), style="red", markup=False, soft_wrap=True)
        raise typer.Exit(1) from error


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """SIGTERM ends the program as Ctrl-C does, so that half-written files are removed."""

    def end(number: int, _: object) -> None:
        sys.exit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def main(arguments: Sequence[str] | None = None, run: Callable[[ExportOptions], None] = run_export) -> None:
    """Read the command line and call `run` with what it asks for."""
    app(repeat_options(arguments, SEVERAL_WORDS), obj=run, prog_name="dragoman-export")


if __name__ == "__main__":
    main()
