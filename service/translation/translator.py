"""Text in, translated text out: the one use case that all routes and the command line share.

Checks the request, finds the way from language to language, has the text planned and its segments decoded side by side,
and puts the answer together. How a segment is decoded is left to `decoding.py`; HTTP, keys and quotas to `service.api`.
"""

import asyncio
import functools
import time
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from typing import TypeVar

from dragoman.service import errors
from dragoman.service.catalog.catalog import Catalog, NoRouteError
from dragoman.service.catalog.served import Lease
from dragoman.service.translation.cache import SegmentCache
from dragoman.service.translation.checks import check_request
from dragoman.service.translation.contract import (
    AUTO,
    Alternative,
    Detection,
    DoneEvent,
    Segment,
    SegmentEvent,
    SegmentWarning,
    StreamEvent,
    Timings,
    TokenEvent,
    TokenLogProb,
    Translation,
    TranslationLimits,
    TranslationOptions,
    TranslationResult,
)
from dragoman.service.translation.decoding import AskAttention, RequestDecoder
from dragoman.service.translation.glossary import NO_GLOSSARY, Glossary
from dragoman.service.translation.language import Detector
from dragoman.service.translation.plan import Planner, TextPlan
from dragoman.service.translation.segments import SplitText
from dragoman.service.translation.streaming import TokenSink
from dragoman.service.translation.work import TextWork, Work

__all__ = [
    "AUTO",
    "Alternative",
    "Detection",
    "DoneEvent",
    "Segment",
    "SegmentEvent",
    "SegmentWarning",
    "StreamEvent",
    "Timings",
    "TokenEvent",
    "TokenLogProb",
    "Translation",
    "TranslationLimits",
    "TranslationOptions",
    "TranslationResult",
    "Translator",
]

T = TypeVar("T")
# Text that is worked on upon the event loop; more would make other requests wait.
_INLINE_CHARACTERS = 2000
# How much likelier than any language it could be translated from must the target be, for a text to be left as it is.
_SURE = 4.0


class Translator:
    def __init__(
        self,
        catalog: Catalog,
        detector: Detector,
        cache: SegmentCache,
        limits: TranslationLimits,
        clock: Callable[[], float] = time.monotonic,
        ask_attention: AskAttention | None = None,
    ) -> None:
        """`clock` must be the one that the engines use: deadlines are theirs too. Tags that a model loses are put back
        by its attention, where somebody can be asked for it."""
        self._catalog, self._detector, self._cache, self._limits, self._clock = catalog, detector, cache, limits, clock
        self._ask_attention = ask_attention

    async def translate(
        self, texts: Sequence[str], source: str, target: str, options: TranslationOptions, tenant: str = ""
    ) -> TranslationResult:
        """Translate every text; cancelling the task cancels its jobs."""
        with await self.begin(texts, source, target, options, tenant) as work:
            return work.result(await work.segments())

    async def stream(
        self, text: str, source: str, target: str, options: TranslationOptions, tenant: str = ""
    ) -> AsyncGenerator[StreamEvent, None]:
        """Events in the order of the text; the joined token events are the text that `translate` returns.

        A segment's tokens come as they are decoded where nothing can take them back: greedy, no placeholders, one unit
        of the last hop. Other segments come whole.
        """
        with await self.begin([text], source, target, options, tenant) as work:
            split = work.texts[0].plan.split
            sinks = [TokenSink() for _ in split.segments]
            segments: list[Segment] = []
            for index, task in enumerate((await work.start(sinks))[0]):
                separator = split.separator(index)
                async for piece in sinks[index].pieces(task):
                    yield TokenEvent(index, separator + piece)
                    separator = ""
                segments.append(await task)
                if rest := separator + sinks[index].rest(segments[-1].text):
                    yield TokenEvent(index, rest)
                yield SegmentEvent(index, segments[-1])
            result = work.result([segments])
            if rest := split.separator(len(segments)):
                yield TokenEvent(max(0, len(segments) - 1), rest)
            yield DoneEvent(result)

    def detect(self, text: str) -> list[Detection]:
        """The languages served, most likely first."""
        return self._detector.detect(text, {code for route in self._catalog.routes() for code in route[:2]})

    # Getting ready

    async def begin(
        self, texts: Sequence[str], source: str, target: str, options: TranslationOptions, tenant: str
    ) -> Work:
        """A request that was checked and planned, with the engines it needs; nothing is decoded yet."""
        check_request(texts, options, self._limits)
        timeouts = [t for t in (options.timeout_seconds, self._limits.default_timeout_seconds) if t is not None]
        deadline_at = self._clock() + min(timeouts) if timeouts else None
        size = sum(map(len, texts))
        source, target = self._catalog.code(source), self._catalog.code(target)
        sources = await self._sources(texts, source, target, size)
        leases: list[Lease] = []
        try:
            ways = {language: self._way(language, target, leases) for language in dict(sources)}
            planned = await _off_loop(lambda: _plan(texts, sources, ways, options), size > _INLINE_CHARACTERS)
        except BaseException:
            for lease in leases:
                lease.end()
            raise
        decoder = RequestDecoder(self._cache, self._clock, options, tenant, deadline_at, self._ask_attention)
        return Work(planned, target, decoder, options, leases)

    async def _sources(
        self, texts: Sequence[str], source: str, target: str, size: int
    ) -> list[tuple[str, Detection | None]]:
        if source != AUTO:
            return [(source, None)] * len(texts)
        routes = self._catalog.routes()
        sources = {start for start, end, _ in routes if end == target}
        if not sources:
            raise self._no_way()
        away = size > _INLINE_CHARACTERS or not self._detector.loaded
        candidates = {code for route in routes for code in route[:2]}
        work = functools.partial(_detected, self._detector, texts, candidates, sources, target)
        return [(detection.language, detection) for detection in await _off_loop(work, away)]

    def _way(self, source: str, target: str, leases: list[Lease]) -> tuple[Planner, ...]:
        if source == target and any(source in route[:2] for route in self._catalog.routes()):
            return ()
        try:
            leases.append(self._catalog.lease(source, target))
        except NoRouteError as error:
            raise self._no_way() from error
        return tuple([Planner(hop, self._limits.max_beam_size, target) for hop in leases[-1].hops])

    def _no_way(self) -> errors.DragomanError:
        if not self._catalog.routes():
            return errors.NotReady("No translation bundle is loaded yet; try again soon.", 1.0)
        return errors.UnknownPair("This server does not translate this pair; /v1/languages lists what it does.")


async def _off_loop(work: Callable[[], T], away: bool) -> T:
    return await asyncio.to_thread(work) if away else work()


def _detected(
    detector: Detector, texts: Sequence[str], candidates: Collection[str], sources: Collection[str], target: str
) -> list[Detection]:
    """Each text's likeliest language that can be translated, or the target's own where that is sure."""
    return [_likeliest(detector.detect(text, candidates), sources, target) for text in texts]


def _likeliest(detections: Sequence[Detection], sources: Collection[str], target: str) -> Detection:
    best = next(detection for detection in detections if detection.language in sources)
    own = next((detection for detection in detections if detection.language == target), best)
    return own if own.confidence > 0.0 and own.confidence >= _SURE * best.confidence else best


def _plan(
    texts: Sequence[str],
    sources: Sequence[tuple[str, Detection | None]],
    ways: dict[str, tuple[Planner, ...]],
    options: TranslationOptions,
) -> list[TextWork]:
    glossary = Glossary(options.glossary) if options.glossary else NO_GLOSSARY
    planned = []
    for text, (language, detected) in zip(texts, sources, strict=True):
        way = ways[language]
        plan = way[0].text(text, glossary, options.split_sentences) if way else TextPlan(SplitText(text, ()), ())
        first = next((index for index, segment in enumerate(plan.segments) if segment.units), None)
        planned.append(TextWork(language, detected, way, plan, first))
    return planned
