"""Our own server as the benchmarks need it: identical segments in flight do not share a decode.

    python -m bench.servers.ours --port 8000 [--bundles DIR] [--whole-batches]

With `--whole-batches` rows join only an empty batch, to compare with. Everything else is `dragoman serve`, with its
settings from the environment.
"""

import argparse
from functools import partial
from pathlib import Path

from dragoman.service.assembly import build_parts
from dragoman.service.commands.serve import run_server
from dragoman.service.process import interpreter
from dragoman.service.settings import load_settings


def main() -> None:
    parser = argparse.ArgumentParser(description="Serve for a benchmark.")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--bundles", type=Path)
    parser.add_argument("--whole-batches", action="store_true")
    given = parser.parse_args()
    with interpreter.serving():
        build = partial(build_parts, single_flight=False, continuous=not given.whole_batches)
        run_server(load_settings(port=given.port, bundles=given.bundles), build)


if __name__ == "__main__":
    main()
