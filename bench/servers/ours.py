"""Our own server as the benchmarks need it: identical segments in flight do not share a decode.

    python -m bench.servers.ours --port 8000 [--bundles DIR] [--whole-batches]

With `--whole-batches` rows join only an empty batch, to compare with. Everything else is `dragoman serve`, with its
settings from the environment.
"""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from dragoman.service.assembly import build_parts
from dragoman.service.commands.serve import run_server
from dragoman.service.process import interpreter
from dragoman.service.settings import load_settings


def serve(
    port: Annotated[int, typer.Option()],
    bundles: Annotated[Path | None, typer.Option()] = None,
    whole_batches: Annotated[bool, typer.Option("--whole-batches")] = False,
) -> None:
    """Serve for a benchmark."""
    with interpreter.serving():
        build = partial(build_parts, single_flight=False, continuous=not whole_batches)
        run_server(load_settings(port=port, bundles=bundles), build)


if __name__ == "__main__":
    typer.run(serve)
