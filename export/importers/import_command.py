"""The command line of `dragoman-import KIND PATH OUT [--precision int8|fp32] [--calibration FILE]`."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from dragoman.export import ExportError
from dragoman.export.importers.imported import ImportedModel
from dragoman.export.importers.proving import ImportOptions, publish_imported
from dragoman.export.verify import VerificationError
from dragoman.service.bundles.manifest import BundleError, Precision

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, help="Turn a model of others into a bundle.")

Out = Annotated[Path, typer.Argument(help="the bundle's directory; with several pairs, a folder of bundles")]
PrecisionName = Annotated[Precision, typer.Option(help="int8 for CPUs, or fp32")]
Calibration = Annotated[
    Path | None, typer.Option(metavar="FILE", help="source sentences that int8 scales are chosen by")
]
Pairs = Annotated[list[str], typer.Option("--pair", metavar="en-fr", help="en-fr=TAG where the tag >>TAG<< is another")]
SentencePiece = Annotated[list[Path], typer.Option(metavar="FILE", help="for both sides, or twice: source, target")]
Replace = Annotated[bool, typer.Option("--replace", help="put the new bundle in the place of an old one")]


@app.command(help="A Hugging Face Marian directory, such as those of OPUS-MT.")
def marian(
    directory: Path,
    out: Out,
    precision: PrecisionName = "int8",
    calibration: Calibration = None,
    pair: Pairs = [],  # noqa: B006
    replace: Replace = False,
) -> None:
    from dragoman.export.importers.marian import read_marian

    _run(lambda: read_marian(directory, pair), ImportOptions(out, precision, calibration, replace))


@app.command(help="A CTranslate2 model directory, or an .argosmodel package.")
def ctranslate2(
    path: Path,
    out: Out,
    precision: PrecisionName = "int8",
    calibration: Calibration = None,
    pair: Pairs = [],  # noqa: B006
    sentencepiece: SentencePiece = [],  # noqa: B006
    replace: Replace = False,
) -> None:
    from dragoman.export.importers.ctranslate2_model import read_ctranslate2

    _run(lambda: read_ctranslate2(path, pair, sentencepiece), ImportOptions(out, precision, calibration, replace))


def _run(read: Callable[[], ImportedModel], options: ImportOptions) -> None:
    console = Console(stderr=True)
    try:
        publish_imported(read(), options, console)
    except (ExportError, VerificationError, BundleError) as error:
        console.print(str(error), style="red", markup=False, soft_wrap=True)
        raise typer.Exit(1) from error


def main() -> None:
    app(prog_name="dragoman-import")
