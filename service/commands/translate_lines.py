"""A line in, a line out: the order is kept, a window of lines at a time, with lines of similar length side by side.

It knows nothing of files, bundles and terminals: `translate.py` and `translate_streams.py` do.
"""

import asyncio
import math
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from dragoman.service.engine.job import FinishReason
from dragoman.service.translation.contract import Segment, SegmentWarning, Translation
from dragoman.service.translation.variants import variants

Translate = Callable[[Sequence[str]], Awaitable[Sequence[Translation]]]

_LOSSES = (SegmentWarning.PLACEHOLDER_LOST, SegmentWarning.EMPTY_TRANSLATION, SegmentWarning.NUMBER_CHANGED)
_CHUNK_LINES = 256  # translated as one request
_CHUNKS_UNDER_WAY = 3  # enough to keep the batch full while one ends; more would wait, and mix lengths


@dataclass(frozen=True)
class LineFormat:
    """What is written for a line: `n_best` lines, and behind each a tab and its score if `scores`."""

    n_best: int = 1
    scores: bool = False

    def write(self, line: str, translation: Translation | None) -> list[str]:
        """A line without a translation is blank, and passes through."""
        found = [(line, 0.0)] if translation is None else list(variants(translation))
        if translation is None:
            found *= self.n_best
        found = (found + [("", -math.inf)] * self.n_best)[: self.n_best]
        # A model may generate a line break, which would shift every line below it.
        texts = [(text.replace("\n", " "), score) for text, score in found]
        return [f"{text}\t{score:.6f}" if self.scores else text for text, score in texts]


@dataclass
class LineReport:
    """How many lines went through, and how many of them may be wrong or incomplete."""

    num_lines: int = 0
    num_troubled: int = 0
    troubles: Counter[str] = field(default_factory=Counter)  # finish reason or warning -> lines
    first_troubled_line: int | None = None

    def note(self, translation: Translation | None) -> None:
        self.num_lines += 1
        troubles = set() if translation is None else set(map(_trouble, translation.segments)) - {None}
        self.troubles.update(trouble for trouble in troubles if trouble is not None)
        if troubles:
            self.num_troubled += 1
            self.first_troubled_line = self.first_troubled_line or self.num_lines


async def translate_lines(
    windows: AsyncIterator[Sequence[str]],
    translate: Translate,
    write: Callable[[Sequence[str]], None],
    shape: LineFormat,
) -> LineReport:
    """Translate all windows; `write` is called with the lines of each window, in order, as soon as it is complete."""
    report = LineReport()
    begun: asyncio.Queue[_Window | None] = asyncio.Queue(maxsize=1)  # one is written, one waits, one is being begun
    tasks: set[asyncio.Task[None]] = set()
    feeder = asyncio.create_task(_feed(windows, translate, begun, tasks))
    try:
        while (window := await begun.get()) is not None:
            await asyncio.gather(*window.tasks)
            tasks.difference_update(window.tasks)
            output = []
            for line, translation in zip(window.lines, window.translations, strict=True):
                report.note(translation)
                output += shape.write(line, translation)
            write(output)
        await feeder  # to raise its error, if it had one
    finally:
        for task in (feeder, *tasks):
            task.cancel()
        await asyncio.gather(feeder, *tasks, return_exceptions=True)
    return report


class _Window:
    """Lines that are being translated."""

    def __init__(self, lines: Sequence[str], translate: Translate, room: asyncio.Semaphore) -> None:
        self.lines = lines
        self.translations: list[Translation | None] = [None] * len(lines)
        # Longest first, so that a window does not end in a batch of one long line.
        by_length = sorted((i for i, line in enumerate(lines) if line.strip()), key=lambda i: -len(lines[i]))
        chunks = [by_length[start : start + _CHUNK_LINES] for start in range(0, len(by_length), _CHUNK_LINES)]
        self.tasks = [asyncio.create_task(self._translate(chunk, translate, room)) for chunk in chunks]

    async def _translate(self, chunk: Sequence[int], translate: Translate, room: asyncio.Semaphore) -> None:
        async with room:
            translations = await translate([self.lines[i] for i in chunk])
        for i, translation in zip(chunk, translations, strict=True):
            self.translations[i] = translation


async def _feed(
    windows: AsyncIterator[Sequence[str]],
    translate: Translate,
    begun: "asyncio.Queue[_Window | None]",
    tasks: "set[asyncio.Task[None]]",
) -> None:
    room = asyncio.Semaphore(_CHUNKS_UNDER_WAY)
    try:
        async for lines in windows:
            window = _Window(lines, translate, room)
            tasks.update(window.tasks)
            await begun.put(window)
    except Exception:
        await begun.put(None)  # the windows before the error are still written
        raise
    await begun.put(None)


def _trouble(segment: Segment) -> str | None:
    if segment.finish_reason is not FinishReason.EOS:
        return segment.finish_reason.value
    return next((loss.value for loss in _LOSSES if loss in segment.warnings), None)
