"""Text in, translated text out: the one use case that all routes and the command line share.

Checks the request, finds the models from language to language, has the texts planned and their segments decoded side by
side, and puts the answer together. `decode.py` decodes a segment; `service.api` handles HTTP, keys and quotas.
"""

import asyncio
import functools
import time
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from concurrent.futures import Future

from dragoman.service import errors
from dragoman.service.catalog.catalog import Catalog, NoRouteError
from dragoman.service.catalog.loading import ClosedError, LoadFailedError, OfferGoneError
from dragoman.service.catalog.served import Codes, Lease
from dragoman.service.translation.cache import SegmentCache
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
from dragoman.service.translation.decode import AskAttention, Decoder
from dragoman.service.translation.glossary import NO_GLOSSARY, Glossary
from dragoman.service.translation.joining import Joints
from dragoman.service.translation.language import Detector
from dragoman.service.translation.plan import Planner, TextPlan
from dragoman.service.translation.request import ActiveRequest
from dragoman.service.translation.request_limits import check_request
from dragoman.service.translation.streaming import TokenSink
from dragoman.service.translation.unit import units_of

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

# A request with more text is planned on another thread, so that others need not wait.
_INLINE_CHARACTERS = 2000
# A text is left as it is if the target language is this many times likelier than any language it could be in.
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
        """`clock` must be the clock of the engines, because they share deadlines. With `ask_attention` a sentence with
        tags is translated without them, and the model's attention says where they go."""
        self._catalog, self._detector, self._cache, self._limits, self._clock = catalog, detector, cache, limits, clock
        self._ask_attention = ask_attention

    async def translate(
        self, texts: Sequence[str], source: str, target: str, options: TranslationOptions, tenant: str = ""
    ) -> TranslationResult:
        """Translate every text; cancelling the task cancels its jobs."""
        with await self.begin(texts, source, target, options, tenant) as request:
            return request.result(await request.segments())

    async def stream(
        self, text: str, source: str, target: str, options: TranslationOptions, tenant: str = ""
    ) -> AsyncGenerator[StreamEvent, None]:
        """Events in the order of the text. The texts of the token events, joined, are what `translate` returns.

        The tokens of a segment come as they are decoded if nothing can replace them: greedy, no placeholders, one unit
        of the last hop. Other segments come whole.
        """
        with await self.begin([text], source, target, options, tenant) as request:
            joints = Joints(text, request.texts[0].segments, target)
            sinks = [TokenSink() for _ in request.texts[0].segments]
            segments: list[Segment] = []
            for index, task in enumerate(await request.start(sinks)):
                begun, before = False, segments[-1].text if segments else ""
                async for piece in sinks[index].pieces(task):
                    yield TokenEvent(index, piece if begun else joints.before(index, before, piece) + piece)
                    begun = True
                segments.append(await task)
                rest = sinks[index].rest(segments[-1].text)
                if rest := rest if begun else joints.before(index, before, rest) + rest:
                    yield TokenEvent(index, rest)
                yield SegmentEvent(index, segments[-1])
            result = request.result([segments])
            if joints.last:
                yield TokenEvent(max(0, len(segments) - 1), joints.last)
            yield DoneEvent(result)

    def detect(self, text: str) -> list[Detection]:
        """The languages served, most likely first."""
        return self._detector.detect(text, {code for route in self._catalog.routes() for code in route[:2]})

    # Getting ready

    async def begin(
        self, texts: Sequence[str], source: str, target: str, options: TranslationOptions, tenant: str
    ) -> ActiveRequest:
        """A request that was checked and planned, with the engines that it needs; nothing is decoded yet."""
        check_request(texts, options, self._limits)
        timeouts = [t for t in (options.timeout_seconds, self._limits.default_timeout_seconds) if t is not None]
        deadline_at = self._clock() + min(timeouts) if timeouts else None
        size = sum(map(len, texts))
        source, target = self._catalog.code(source, "source"), self._catalog.code(target, "target")
        sources = await self._sources(texts, source, target, size)
        leases = await self._leases(list(dict(sources)), target, deadline_at)
        try:
            ways = {language: self._way(language, target, leases) for language in dict(sources)}
            if size > _INLINE_CHARACTERS:
                plans = await asyncio.to_thread(_plan, texts, sources, ways, options)
            else:
                plans = _plan(texts, sources, ways, options)
        except BaseException:
            for lease in leases:
                lease.end()
            raise
        decoder = Decoder(self._cache, self._clock, options, tenant, deadline_at, self._ask_attention)
        return ActiveRequest(plans, target, decoder, options, leases)

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
        detect = functools.partial(_detected, self._detector, texts, candidates, sources, target)
        return [(each.language, each) for each in (await asyncio.to_thread(detect) if away else detect())]

    async def _leases(self, sources: Sequence[str], target: str, deadline_at: float | None) -> list[Lease]:
        """One lease for all pairs of the request: two requests that each held a bundle and waited for the other's
        would wait for ever."""
        pairs = [(source, target) for source in sources if source != target or not self._is_served(source)]
        if not pairs:
            return []
        try:
            return [self._catalog.lease_now(pairs) or await self._loaded(pairs, deadline_at)]
        except NoRouteError as error:
            raise self._no_way() from error

    def _is_served(self, language: str) -> bool:
        return any(language in route[:2] for route in self._catalog.routes())

    async def _loaded(self, pairs: Sequence[Codes], deadline_at: float | None) -> Lease:
        """Wait until the bundles are loaded, at most until the deadline."""
        try:
            async with asyncio.timeout(None if deadline_at is None else max(0.0, deadline_at - self._clock())):
                while True:
                    try:
                        return await self._lease_soon(pairs)
                    except OfferGoneError:
                        continue  # replaced meanwhile: another one serves
        except TimeoutError:
            raise errors.DeadlineExceeded(
                "The request's time ran out before its model was loaded; allow more time, or try later."
            ) from None
        except LoadFailedError as error:
            raise errors.NotReady("The model of this pair could not be loaded; try again soon.", 1.0) from error
        except ClosedError as error:
            raise errors.Draining("This server is shutting down; send the request again.", 1.0) from error

    async def _lease_soon(self, pairs: Sequence[Codes]) -> Lease:
        promise = self._catalog.lease_soon(pairs)
        try:
            return await asyncio.wrap_future(promise)
        except BaseException:
            if not promise.cancel():  # it came all the same
                promise.add_done_callback(_end)
            raise

    def _way(self, source: str, target: str, leases: Sequence[Lease]) -> tuple[Planner, ...]:
        hops = leases[0].ways.get((source, target), ()) if leases else ()
        places_tags = self._ask_attention is not None
        return tuple([Planner(hop, self._limits.max_beam_size, target, places_tags) for hop in hops])

    def _no_way(self) -> errors.DragomanError:
        if not self._catalog.routes():
            return errors.NotReady("No translation bundle is loaded yet; try again soon.", 1.0)
        return errors.UnknownPair(
            "This server does not translate this pair; /v1/languages lists the pairs that it translates."
        )


def _end(promise: "Future[Lease]") -> None:
    if not promise.cancelled() and promise.exception() is None:
        promise.result().end()


def _detected(
    detector: Detector, texts: Sequence[str], candidates: Collection[str], sources: Collection[str], target: str
) -> list[Detection]:
    """The likeliest language of each text that can be translated, or the target language if that is sure."""
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
) -> list[TextPlan]:
    glossary = Glossary(options.glossary) if options.glossary else NO_GLOSSARY
    plans: list[TextPlan] = []
    for text, (language, detected) in zip(texts, sources, strict=True):
        planners = ways[language]
        # Only the first hop is planned here; the others are planned when the hop before is done.
        segments, of_segments = planners[0].text(text, glossary, options.split_sentences) if planners else ((), ())
        first = next((index for index, plan in enumerate(of_segments) if units_of(plan)), None)
        plans.append(TextPlan(text, segments, of_segments, first, language, detected, planners))
    return plans
