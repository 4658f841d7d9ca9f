"""This tree against another revision of it: the same work in turn, and the ratio with its confidence interval.

    python -m bench.compare REVISION [--workloads greedy beam single] [--runs 8] [--export]

The revision is checked out into a temporary worktree. One worker process per tree (this tree's `compare_worker.py` for
both) stays up; they work in turn on one core, by CPU time of one thread. Both decode the same token ids with the same
bundle, or with `--export` with one that each tree's own exporter made of the same weights.
"""

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from bench.harness import ROOT, Profile, Sources, command_line, one_of, pinned
from bench.texts import sentences
from dragoman.export.option_values import repeat_options
from dragoman.service.bundles.manifest import Bundle, read_bundle
from dragoman.service.translation.tokenizer import load_tokenizer

WORKER = Path(__file__).with_name("compare_worker.py")
WORKLOADS = ("greedy", "beam", "single")
SAMPLES = 10_000  # of the bootstrap
Interval = tuple[float, float, float]  # middle, low, high


app = command_line()
Workloads = Annotated[
    list[str], typer.Option(metavar="NAME …", callback=one_of(WORKLOADS), help=f"some of: {', '.join(WORKLOADS)}")
]


@dataclass(frozen=True)
class Plan:
    """What to compare."""

    base: str
    workloads: Sequence[str]
    runs: int
    limit: int
    sources: Path | None
    bundle: Path
    model: Path
    export: bool


@dataclass(frozen=True)
class Comparison:
    workload: str
    ours: Sequence[float]  # CPU seconds, run by run
    base: Sequence[float]
    sentences: int
    same: bool  # the same tokens came out

    @property
    def interval(self) -> Interval:
        return bootstrap([theirs / mine for mine, theirs in zip(self.ours, self.base, strict=True)])


def bootstrap(ratios: Sequence[float], confidence: float = 0.95, seed: int = 0) -> Interval:
    """The geometric mean of the ratios, and the range in which it lies with this confidence, by resampling them."""
    draw = random.Random(seed)
    means = sorted(statistics.geometric_mean(draw.choices(ratios, k=len(ratios))) for _ in range(SAMPLES))
    tail = round((1 - confidence) / 2 * SAMPLES)
    return statistics.geometric_mean(ratios), means[tail], means[-1 - tail]


@contextmanager
def checked_out(revision: str) -> Iterator[Path]:
    """A temporary worktree; removed again, whatever happens."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "base"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(tree), revision], check=True)
        try:
            yield tree
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def environment(tree: Path) -> dict[str, str]:
    """The tree's own packages come before the installed ones, under the names that it gives them."""
    names = tree / "build" / "names" if (tree / "setup.py").exists() else tree
    if names != tree:
        (names / "dragoman").mkdir(parents=True, exist_ok=True)
        for package in ("service", "export", "model"):
            link = names / "dragoman" / package
            if not link.exists():
                link.symlink_to(tree / package)
    return os.environ | {"PYTHONPATH": str(names), "OMP_NUM_THREADS": "1"}


class Worker:
    """A worker process in one tree."""

    def __init__(self, tree: Path, bundle: Path, ids: Path) -> None:
        self._tree = tree
        command = [sys.executable, "-P", str(WORKER), str(tree), str(bundle), str(ids)]
        self._process = subprocess.Popen(
            command, cwd=tree, env=environment(tree), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *error: object) -> None:
        self._process.terminate()
        self._process.communicate()

    def run(self, workload: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(workload + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"the worker in {self._tree} ended; what it said stands above (try --export)")
        return dict(json.loads(line))


def compare(ours: Worker, base: Worker, workload: str, runs: int) -> Comparison:
    first = ours.run(workload), base.run(workload)  # warm-up
    same = first[0]["digest"] == first[1]["digest"]
    seconds: dict[Worker, list[float]] = {ours: [], base: []}
    for number in track(range(runs), f"{workload}", console=Console(stderr=True), transient=True):
        for worker in (ours, base) if number % 2 == 0 else (base, ours):
            seconds[worker].append(worker.run(workload)["seconds"])
    return Comparison(workload, seconds[ours], seconds[base], first[0]["sentences"], same)


def source_ids(bundle: Bundle, texts: Sequence[str]) -> list[list[int]]:
    tokenizer, prefix, eos_id = load_tokenizer(bundle), bundle.pairs[0].source_prefix_ids, bundle.special_ids.eos
    sources = [[*prefix, *tokenizer.encode([text]), eos_id] for text in texts]
    return [ids for ids in sources if len(ids) <= bundle.limits.max_source_tokens]


def export(tree: Path, model: Path, out: Path, texts: Sequence[str]) -> Path:
    """A bundle of these weights by this tree's own exporter; its evidence, which it must have, is not looked at."""
    own = [_written(out.with_suffix(f".{side}"), sentences(None, 300, side)) for side in ("pt", "en")]
    words = ["--calibration", _written(out.with_suffix(".txt"), texts), "--golden", own[0], "--verify", *own]
    package = "dragoman.export" if (tree / "setup.py").exists() else "export"
    code = f"from {package}.command import main; main()"  # the console script, wherever a tree has its own parts
    command = [sys.executable, "-P", "-c", code, str(model), str(out), *words]
    subprocess.run(command, cwd=tree, env=environment(tree), check=True, stdout=subprocess.DEVNULL)
    return out


def _written(path: Path, lines: Sequence[str]) -> str:
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return str(path)


def run(plan: Plan) -> list[Comparison]:
    texts = sentences(plan.sources, plan.limit)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        base = stack.enter_context(checked_out(plan.base))
        ids = folder / "ids.json"
        ids.write_text(json.dumps(source_ids(read_bundle(plan.bundle, check_hashes=False), texts)), "utf-8")
        workers = []
        stack.enter_context(pinned(0))
        for name, tree in (("ours", ROOT), ("base", base)):
            bundle = export(tree, plan.model, folder / name, texts) if plan.export else plan.bundle
            workers.append(stack.enter_context(Worker(tree, bundle, ids)))
        return [compare(workers[0], workers[1], workload, plan.runs) for workload in plan.workloads]


def show(found: Sequence[Comparison], base: str) -> None:
    table = Table("workload", "this tree", base, "ratio", "95 % interval", "tokens", title="sentences per CPU second")
    for one in found:
        rates = [f"{one.sentences / statistics.median(side):.0f}" for side in (one.ours, one.base)]
        middle, low, high = one.interval
        table.add_row(
            one.workload, *rates, f"{middle:.3f}", f"{low:.3f} to {high:.3f}", "same" if one.same else "differ"
        )
    Console().print(table, "Above 1, this tree is faster.", sep="\n")


@app.command(help=(__doc__ or "").split("\n")[0])
def command(
    base: Annotated[str, typer.Argument(help="revision to compare with")],
    workloads: Workloads = [],  # noqa: B006
    runs: Annotated[int, typer.Option(help="runs of each tree")] = 8,
    limit: Annotated[int, typer.Option(help="number of sentences")] = 400,
    sources: Sources = None,
    bundle: Annotated[Path, typer.Option(show_default=False, help="the bundle that both trees run")] = Profile.bundle,
    model: Annotated[
        Path, typer.Option(show_default=False, help="the saved model that both trees export, with --export")
    ] = Profile.model,
    export: Annotated[
        bool, typer.Option("--export", help="compare the exporters too: each tree makes its bundle")
    ] = False,
) -> None:
    plan = Plan(base, workloads or WORKLOADS, runs, limit, sources, bundle.resolve(), model.resolve(), export)
    show(run(plan), base)


def main(arguments: Sequence[str] | None = None) -> None:
    app(repeat_options(arguments, {"--workloads": None}))


if __name__ == "__main__":
    main()
