"""The suite: `python -m bench [quick | full] [--only NAME …] [--sources FILE]`.

Every benchmark runs in a process of its own, so that none inherits another's threads, pinning or memory; then the page
is drawn. A benchmark that fails is told at the end, and the others run all the same.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.harness import REPORTS, load
from bench.report import write_page

# In this order; `training` needs files and runs by itself.
SUITE = ("offline", "latency", "served", "beside", "overhead", "limit", "anatomy", "growth", "memory")


@dataclass(frozen=True)
class Outcome:
    name: str
    good: bool
    seconds: float


def main(arguments: Sequence[str] | None = None) -> int:
    given = _parse(arguments)
    console = Console()
    options = [word for name in ("sources", "model", "bundle", "runs", "out") for word in _option(name, given)]
    began, outcomes = time.perf_counter(), []
    for number, name in enumerate(given.only or SUITE, 1):
        console.rule(f"{number} of {len(given.only or SUITE)}: {name}, {given.profile}")
        outcomes.append(_run(name, [given.profile, *options]))
    console.rule(f"{time.perf_counter() - began:.0f} s in all")
    if any(outcome.good for outcome in outcomes):
        console.print(_summary(outcomes, given.out))
        console.print(f"The page: {write_page(given.out)}")
    for outcome in outcomes:
        if not outcome.good:
            console.print(f"{outcome.name} failed; `python -m bench.{outcome.name}` says why.", style="red")
    return 0 if all(outcome.good for outcome in outcomes) else 1


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure, and draw the page.")
    parser.add_argument("profile", nargs="?", choices=["quick", "full"], default="quick")
    parser.add_argument("--only", nargs="+", choices=SUITE, metavar="NAME", help=f"some of: {', '.join(SUITE)}")
    parser.add_argument("--sources", type=Path, help="sentences, one a line (default: the repository's own)")
    parser.add_argument("--model", type=Path, help="saved model, .safetensors")
    parser.add_argument("--bundle", type=Path, help="its bundle")
    parser.add_argument("--runs", type=int, help="of every measurement")
    parser.add_argument("--out", type=Path, default=REPORTS, help="folder of the reports")
    return parser.parse_args(arguments)


def _option(name: str, given: argparse.Namespace) -> list[str]:
    value = getattr(given, name)
    return [] if value is None else [f"--{name}", str(value)]


def _run(name: str, arguments: Sequence[str]) -> Outcome:
    """The benchmark's own progress bar and tables go to the terminal."""
    began = time.perf_counter()
    code = subprocess.run([sys.executable, "-m", f"bench.{name}", *arguments], check=False).returncode
    return Outcome(name, code == 0, time.perf_counter() - began)


def _summary(outcomes: Sequence[Outcome], folder: Path) -> Table:
    table = Table("benchmark", "seconds", "what", "against", "ratio", "bar", "met", title="Against the bars")
    for outcome in (one for one in outcomes if one.good):
        for ratio in load(folder / f"{outcome.name}.json").ratios:
            if ratio.bar is None:
                continue
            met = "[green]yes" if ratio.met else "[red]no"
            cells = [f"{ratio.ratio:.2f} ({ratio.low:.2f} to {ratio.high:.2f})", f"{ratio.bar:.3g}", met]
            table.add_row(outcome.name, f"{outcome.seconds:.0f}", ratio.what, ratio.against, *cells)
    return table


if __name__ == "__main__":
    sys.exit(main())
