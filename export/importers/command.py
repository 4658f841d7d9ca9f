"""The console script `dragoman-import`: models that others trained become bundles; a subcommand for every format."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console

if TYPE_CHECKING:
    from dragoman.service.bundles.manifest import Bundle

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, no_args_is_help=True)

Out = Annotated[Path, typer.Argument(help="the bundle's directory")]
PairName = Annotated[str | None, typer.Option("--pair", metavar="SOURCE-TARGET", help="by default from the file names")]
Verify = Annotated[
    Path | None, typer.Option(metavar="FILE", help="source sentences to check with, one a line; by default our own")
]
Replace = Annotated[bool, typer.Option("--replace", help="put the bundle in the place of the one that has the name")]


@app.callback()
def formats() -> None:
    """Turn models that others trained into proven bundles."""


@app.command()
def firefox(
    folder: Annotated[Path, typer.Argument(help="the files of one model of Firefox Translations")],
    out: Out,
    precision: Annotated[Literal["int8", "fp32"], typer.Option(help="int8 for CPUs, fp32 for any device")] = "int8",
    pair: PairName = None,
    verify: Verify = None,
    replace: Replace = False,
) -> None:
    """A student model of Firefox Translations (model.*.bin, vocab.*.spm, lex.*.bin)."""
    from dragoman.export.importers.firefox import import_firefox

    told = parse_pair(pair)
    run_import(lambda announce: import_firefox(folder, out, told, precision, replace, announce, verify))


def parse_pair(name: str | None) -> tuple[str, str] | None:
    if name is None:
        return None
    source, dash, target = name.partition("-")
    if not (source and dash and target):
        raise typer.BadParameter(f"{name} is not a pair such as pt-en", param_hint="--pair")
    return source, target


def run_import(work: "Callable[[Callable[[str], None]], Bundle]") -> None:
    """Say the steps, then the bundle, or one sentence on what went wrong."""
    from dragoman.export import ExportError
    from dragoman.export.verify import VerificationError
    from dragoman.service.bundles.manifest import BundleError

    console = Console(stderr=True)
    try:
        bundle = work(lambda step: console.print(f"  {step}", style="dim", markup=False, highlight=False))
    except (ExportError, VerificationError, BundleError) as error:
        sys.exit(f"dragoman-import: {error}")
    print(f"{bundle.path}: {bundle.name} {bundle.version}, {bundle.precision}")


def main() -> None:
    try:
        app()
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("dragoman"):
            raise  # ours: a mistake, not a choice
        sys.exit(f"{error.name} is not installed; importing needs it: pip install 'dragoman[import]'")
