"""What `dragoman pull` shows on a terminal: progress, a table of what there is, and a summary of what was done."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.table import Table

from dragoman.export.pulling.fetching import Advance
from dragoman.export.pulling.puller import Outcome, installed
from dragoman.export.pulling.releases import Release, RemoteFile


class TerminalWatcher:
    """A bar for each file on a terminal; plain lines in a log."""

    def __init__(self, console: Console) -> None:
        self._console = console
        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        self.progress = Progress(*columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal)

    def say(self, sentence: str) -> None:
        self._console.print(sentence, markup=False, highlight=False, soft_wrap=True)

    def downloading(self, file: RemoteFile) -> Advance:
        if not self._console.is_terminal:
            self.say(f"downloading {file.url}")
        task = self.progress.add_task(file.name, total=file.packed_size)

        def advance(done: int, total: int | None) -> None:
            self.progress.update(task, completed=done, total=total)

        return advance


def listing(releases: Iterable[Release], to: Path) -> Table:
    table = Table("pair", "registry", "architecture", "size", "release", "licence", "installed")
    for release in releases:
        table.add_row(
            release.pair,
            release.registry,
            release.architecture,
            megabytes(release.size),
            release.release,
            release.licence,
            _installed(release, to),
        )
    return table


def summary(outcomes: Sequence[Outcome]) -> Table:
    table = Table("pair", "result", "release", "size")
    for outcome in outcomes:
        table.add_row(
            outcome.pair,
            outcome.result,
            outcome.release.release if outcome.release else "",
            megabytes(outcome.size),
        )
    return table


def megabytes(size: int | None) -> str:
    return f"{size / 1e6:.1f} MB" if size else ""


def _installed(release: Release, to: Path) -> str:
    bundle = installed(to / release.pair)
    if bundle is None:
        return ""
    origin = bundle.training.get("origin")
    found = origin.get("release") if isinstance(origin, dict) else None
    return "yes" if found == release.release else f"another: {found or bundle.version}"
