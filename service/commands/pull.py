"""`dragoman pull`: its options, and `serve --pull`. The work is done by `dragoman.export.pulling`, found by its name.

Serving imports nothing of the exporter (see DESIGN.md), and a serving image lacks it: then this file says what to
install. It is the only one that knows the name.
"""

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from dragoman.service.commands.configuration import fail

PULLING = "dragoman.export.pulling.pull_command"
INSTALL = "pip install 'dragoman[import]'"
DEFAULT_BUNDLES = Path("bundles")
_NICE = 10  # a pull beside a server leaves the processor to it
_END_SECONDS = 10.0
_LOOK_SECONDS = 0.2


def pull(
    pairs: Annotated[list[str] | None, typer.Argument(help="Pairs of languages, such as pt-en es-en")] = None,
    list_only: Annotated[bool, typer.Option("--list", help="Show what there is, and what is installed.")] = False,
    registry: Annotated[
        Literal["mozilla", "opus", "argos"], typer.Option("--from", help="Who publishes the models")
    ] = "mozilla",
    to: Annotated[
        Path, typer.Option(envvar="DRAGOMAN_BUNDLES", help="Directory of bundles, made where it is missing")
    ] = DEFAULT_BUNDLES,
    mirror: Annotated[str | None, typer.Option(help="Another address of the same registry")] = None,
    cache: Annotated[Path | None, typer.Option(help="Where downloads are kept [~/.cache/dragoman]")] = None,
    architecture: Annotated[str | None, typer.Option(help="Of Mozilla's models: base-memory, base or tiny")] = None,
    precision: Annotated[Literal["int8", "fp32", "fp16"], typer.Option(help="Of the bundle")] = "int8",
) -> None:
    """Download models, check them, make bundles of them. A server that runs on the directory picks them up."""
    wanted = split_pairs(pairs or ())
    if not wanted and not list_only:
        fail("Name the pairs to pull, such as pt-en; `dragoman pull --list` shows what there is.")
    command = pulling()
    options = command.PullOptions(wanted, registry, to, cache, mirror, architecture, precision, list_only)
    raise typer.Exit(command.run(options))


def split_pairs(values: Sequence[str]) -> list[str]:
    """`pt-en,es-en` and `pt-en es-en` alike, each pair once."""
    return list(dict.fromkeys(pair.strip() for value in values for pair in value.split(",") if pair.strip()))


def pulling() -> Any:
    try:
        return import_module(PULLING)
    except ModuleNotFoundError as error:
        fail(f"dragoman pull needs {error.name}, which is not installed here: {INSTALL}")


@contextmanager
def pulling_beside(pairs: Sequence[str] | None, bundles: Path | None, options: str = "") -> Iterator[Path | None]:
    """A process that pulls while the server serves what is there; gives the directory of bundles of both.

    Where nothing is there, the server waits for the first pair, not for all."""
    wanted = split_pairs(pairs or ())
    if not wanted:
        yield bundles
        return
    pulling()  # where it cannot be done, say so before serving
    folder = bundles or Path(os.environ.get("DRAGOMAN_BUNDLES") or DEFAULT_BUNDLES)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        fail(f"{folder} cannot be made ({error.strerror}): choose another directory with --bundles")
    command = [sys.executable, "-m", "dragoman.service.commands.main", "pull", *wanted, "--to", str(folder)]
    process = subprocess.Popen(
        [*command, *shlex.split(options)],
        stdout=2,  # the server's first line on stdout is its address
        preexec_fn=lambda: os.nice(_NICE),
    )
    try:
        _wait_for_a_bundle(process, folder)
        yield folder
    finally:
        _end(process)


def _wait_for_a_bundle(process: "subprocess.Popen[bytes]", folder: Path) -> None:
    """A server needs one bundle to start with; the other pairs come while it serves."""
    while not any(folder.glob("[!.]*/bundle.json")) and not (folder / "bundle.json").is_file():
        with suppress(subprocess.TimeoutExpired):
            process.wait(_LOOK_SECONDS)
            if not any(folder.glob("[!.]*/bundle.json")):
                fail(f"No pair could be pulled and {folder} has no bundle, so there is nothing to serve.")


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Politely, so that it removes what is unfinished; the rest is left for the next pull."""
    process.terminate()
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
