"""How fast a run goes: a progress bar for people, tokens per second for the curve."""

import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as ProgressBar

from dragoman.model.checkpoint import Progress


class Meter:
    def __init__(self, console: Console, max_steps: int, progress: Progress, visible: bool) -> None:
        self._progress = progress
        self._resumed_seconds, self._started_at = progress.seconds, time.monotonic()
        self._mark = (time.monotonic(), progress.tokens)
        self._rate = 0
        self._bar = ProgressBar(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("loss {task.fields[loss]:.3f}  {task.fields[rate]} tokens/s"),
            TimeRemainingColumn(),
            console=console,
            disable=not (visible and console.is_terminal),
        )
        self._task = self._bar.add_task("training", total=max_steps, completed=progress.step, loss=0.0, rate=0)

    def show(self, loss: float) -> None:
        self._progress.seconds = self._resumed_seconds + time.monotonic() - self._started_at
        self._bar.update(self._task, completed=self._progress.step, loss=loss, rate=self._rate)

    def tokens_per_second(self) -> int:
        """Since the last call."""
        now, (then, tokens) = time.monotonic(), self._mark
        self._rate = round((self._progress.tokens - tokens) / max(now - then, 1e-9))
        self._mark = (now, self._progress.tokens)
        return self._rate

    def __enter__(self) -> "Meter":
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()
