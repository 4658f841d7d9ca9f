"""The suite: `python -m bench [quick | full] [--only NAME …] [--sources FILE]`.

Every benchmark runs in a process of its own, so that none inherits another's threads, pinning or memory; then the page
is drawn. A benchmark that fails is told at the end, and the others run all the same.
"""

import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from bench.harness import REPORTS, ProfileName, Runs, Sources, command_line, load, one_of
from bench.report import write_page
from dragoman.export.option_values import repeat_options

# In this order; `training` needs files and runs by itself.
SUITE = ("offline", "latency", "served", "beside", "overhead", "limit", "anatomy", "growth", "memory")

app = command_line()
Only = Annotated[list[str], typer.Option(metavar="NAME …", callback=one_of(SUITE), help=f"some of: {', '.join(SUITE)}")]


@dataclass(frozen=True)
class Outcome:
    name: str
    good: bool
    seconds: float


@app.command(help="Measure, and draw the page.")
def suite(
    profile: Annotated[ProfileName, typer.Argument()] = "quick",
    only: Only = [],  # noqa: B006
    sources: Sources = None,
    model: Annotated[Path | None, typer.Option(help="saved model, .safetensors")] = None,
    bundle: Annotated[Path | None, typer.Option(help="bundle of the same weights")] = None,
    runs: Runs = None,
    out: Annotated[Path, typer.Option(show_default=False, help="folder of the reports")] = REPORTS,
) -> None:
    given = {"--sources": sources, "--model": model, "--bundle": bundle, "--runs": runs, "--out": out}
    options = [word for name, value in given.items() if value is not None for word in (name, str(value))]
    raise typer.Exit(measure(only or SUITE, [profile, *options], out))


def measure(names: Sequence[str], arguments: Sequence[str], folder: Path) -> int:
    """Run the benchmarks with these arguments, whose first word is the profile; 1 when one of them failed."""
    console = Console()
    began, outcomes = time.perf_counter(), []
    for number, name in enumerate(names, 1):
        console.rule(f"{number} of {len(names)}: {name}, {arguments[0]}")
        outcomes.append(_run(name, arguments))
    console.rule(f"{time.perf_counter() - began:.0f} s in all")
    if any(outcome.good for outcome in outcomes):
        console.print(_summary(outcomes, folder))
        console.print(f"The page: {write_page(folder)}")
    for outcome in outcomes:
        if not outcome.good:
            console.print(f"{outcome.name} failed; `python -m bench.{outcome.name}` says why.", style="red")
    return 0 if all(outcome.good for outcome in outcomes) else 1


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


def main(arguments: Sequence[str] | None = None) -> None:
    app(repeat_options(arguments, {"--only": None}), prog_name="python -m bench")


if __name__ == "__main__":
    main()
