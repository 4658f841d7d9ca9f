"""What all benchmarks share: how they are asked, how they measure side by side, and what they hand back.

A benchmark is a module with `run(profile) -> Report`. It measures works alternately (`alternate`), compares run by run
(`faster`, `slower`: the ratio is the median of the pairs, so that a slow minute of the machine hits both sides), and
its report is saved as JSON. Drawing reports and running many benchmarks is left to others.
"""

import dataclasses
import gc
import json
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table as ConsoleTable

from bench.machine import machine

ROOT = Path(__file__).parents[1]
REPORTS = ROOT / "bench" / "report"
Work = Callable[[], object]
Meter = Callable[[Work], float]
Cell = str | int | float | None

# Options that all benchmarks have.
ProfileName = Literal["quick", "full"]
Sources = Annotated[Path | None, typer.Option(help="sentences, one a line (default: the repository's own)")]
Model = Annotated[Path, typer.Option(show_default=False, help="saved model, .safetensors")]
BundleFolder = Annotated[Path, typer.Option(show_default=False, help="bundle of the same weights")]
Runs = Annotated[int | None, typer.Option(help="runs of every measurement")]
Out = Annotated[Path, typer.Option(show_default=False, help="folder for the JSON")]


@dataclass(frozen=True)
class Profile:
    """How much to measure, and on what."""

    name: ProfileName = "quick"
    sources: Path | None = None  # sentences, one a line; None: the repository's own
    model: Path = ROOT / "model" / "weights" / "pt-en-both.safetensors"
    bundle: Path = ROOT / "service" / "embedded" / "pt-en"  # of the same weights
    runs: int | None = None  # None: as many as the benchmark thinks right for this profile
    progress: bool = True

    @property
    def quick(self) -> bool:
        return self.name == "quick"

    def choose(self, quick: Any, full: Any) -> Any:
        return quick if self.quick else full


@dataclass(frozen=True)
class Table:
    title: str
    columns: list[str]
    rows: list[list[Cell]]


@dataclass(frozen=True)
class Figure:
    """Data for one plot; `lines` are horizontal limits by name. File name: `name`.png."""

    name: str
    title: str
    x_label: str
    y_label: str
    series: dict[str, list[list[float]]]  # label -> [[x, y], …]
    log_x: bool = False
    log_y: bool = False
    lines: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Ratio:
    """Ours against a peer; `ratio` is ours / peer of the quantity in `unit` (the median of the pairs)."""

    what: str
    against: str  # the peer's name
    ours: float  # medians
    peer: float
    unit: str
    ratio: float
    low: float  # of the pairs
    high: float
    bar: float | None  # None: told, not promised
    higher_is_better: bool

    @property
    def met(self) -> bool | None:
        if self.bar is None:
            return None
        return self.ratio >= self.bar if self.higher_is_better else self.ratio <= self.bar


@dataclass(frozen=True)
class Report:
    name: str  # of the benchmark and its file
    title: str
    tables: list[Table] = field(default_factory=list)
    ratios: list[Ratio] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # sentences: what was measured, and how to read it
    profile: str = "quick"
    seconds: float = 0.0  # that the benchmark took
    machine: dict[str, Any] = field(default_factory=dict)


def cpu_seconds(work: Work) -> float:
    """CPU time of this process, all of its threads."""
    start = time.process_time()
    work()
    return time.process_time() - start


def wall_seconds(work: Work) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def alternate(
    works: Mapping[str, Work], runs: int, meter: Meter = cpu_seconds, warm: bool = True
) -> dict[str, list[float]]:
    """Seconds of every work in every run, one after the other and in turn backwards; pairs belong together."""
    if warm:
        for work in works.values():
            work()
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for number in range(runs):
        names = list(works) if number % 2 == 0 else list(reversed(works))
        for name in names:
            seconds[name].append(meter(works[name]))
    return seconds


def faster(
    what: str, against: str, ours: Sequence[float], peer: Sequence[float], amount: float, unit: str, bar: float | None
) -> Ratio:
    """A ratio of rates from seconds: `amount` of something done in each run. Above 1, ours is faster."""
    pairs = sorted(b / a for a, b in zip(ours, peer, strict=True))
    mine, theirs = (amount / statistics.median(side) for side in (ours, peer))
    return Ratio(what, against, mine, theirs, unit, statistics.median(pairs), pairs[0], pairs[-1], bar, True)


def slower(
    what: str, against: str, ours: Sequence[float], peer: Sequence[float], unit: str, bar: float | None
) -> Ratio:
    """A ratio of costs (latencies, memory). Below 1, ours costs less."""
    pairs = sorted(a / b for a, b in zip(ours, peer, strict=True))
    mine, theirs = statistics.median(ours), statistics.median(peer)
    return Ratio(what, against, mine, theirs, unit, statistics.median(pairs), pairs[0], pairs[-1], bar, False)


def share(what: str, of: str, part: float, whole: float, unit: str, bar: float | None, higher_is_better: bool) -> Ratio:
    """A part of a whole, both medians or measured once: no pairs, no spread."""
    ratio = part / whole
    return Ratio(what, of, part, whole, unit, ratio, ratio, ratio, bar, higher_is_better)


def spread(values: Sequence[float]) -> str:
    """Median and range, for a table."""
    return f"{statistics.median(values):.4g} ({min(values):.4g} to {max(values):.4g})"


def percentile(values: Sequence[float], percent: int) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1] if len(values) > 1 else values[0]


@contextmanager
def pinned(core: int) -> Iterator[None]:
    """This thread (and threads and processes that it starts) on one core; all cores again afterwards."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {sorted(before)[core % len(before)]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def collected() -> Iterator[None]:
    """Objects made so far (torch, mostly) are left out of garbage collection: they are no part of the service."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@contextmanager
def steps(profile: Profile, title: str, total: int) -> Iterator[Callable[[str], None]]:
    """A progress bar; call what it yields with the name of the step that begins."""
    with Progress(console=Console(stderr=True), disable=not profile.progress, transient=True) as bar:
        task = bar.add_task(title, total=total)
        begun = False

        def begin(name: str) -> None:
            nonlocal begun
            bar.update(task, description=f"{title}: {name}", advance=1 if begun else 0)
            begun = True

        yield begin
        bar.update(task, completed=total)


def save(report: Report, folder: Path = REPORTS) -> Path:
    """Write NAME.json, with the machine."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{report.name}.json"
    whole = dataclasses.replace(report, machine=report.machine or machine())
    path.write_text(json.dumps(dataclasses.asdict(whole), indent=1, ensure_ascii=False) + "\n", "utf-8")
    return path


def load(path: Path) -> Report:
    record = json.loads(path.read_text("utf-8"))
    kinds = {"tables": Table, "ratios": Ratio, "figures": Figure}
    return Report(**record | {name: [kind(**item) for item in record[name]] for name, kind in kinds.items()})


def show(report: Report, console: Console) -> None:
    for table in report.tables:
        drawn = ConsoleTable(*table.columns, title=table.title)
        for row in table.rows:
            drawn.add_row(*map(_cell, row))
        console.print(drawn)
    for ratio in report.ratios:
        verdict = {None: "", True: f", bar {ratio.bar} met", False: f", bar {ratio.bar} MISSED"}[ratio.met]
        values = f"{ratio.ours:.4g} against {ratio.peer:.4g} {ratio.unit}"
        console.print(
            f"{ratio.what}, {ratio.against}: {ratio.ratio:.2f} ({ratio.low:.2f} to {ratio.high:.2f}), {values}{verdict}"
        )
    for note in report.notes:
        console.print(note, style="dim")


def _cell(value: Cell) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def timed(run: Callable[[Profile], Report], profile: Profile) -> Report:
    """Run a benchmark; its report says the profile, how long it took, and the machine as it was before."""
    before, began = machine(), time.perf_counter()
    report = run(profile)
    seconds = round(time.perf_counter() - began, 1)
    return dataclasses.replace(report, profile=profile.name, seconds=seconds, machine=before)


def command(run: Callable[[Profile], Report], description: str | None) -> None:
    """The command line of one benchmark: measure, show, save."""
    default, app = Profile(), command_line()

    @app.command(help=(description or "").split("\n")[0])
    def measure(
        profile: Annotated[ProfileName, typer.Argument()] = "quick",
        sources: Sources = None,
        model: Model = default.model,
        bundle: BundleFolder = default.bundle,
        runs: Runs = None,
        out: Out = REPORTS,
    ) -> None:
        report = timed(run, Profile(profile, sources, model, bundle, runs))
        show(report, Console())
        save(report, out)

    app()


def command_line() -> typer.Typer:
    """A command whose errors show as plain tracebacks."""
    return typer.Typer(add_completion=False, pretty_exceptions_enable=False)


def one_of(choices: Sequence[str]) -> Callable[[list[str]], list[str]]:
    """The check of an option that takes some of these names."""

    def check(names: list[str]) -> list[str]:
        for name in names:
            if name not in choices:
                raise typer.BadParameter(f"{name!r} is not one of {', '.join(choices)}")
        return names

    return check
