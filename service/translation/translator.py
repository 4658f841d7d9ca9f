"""Text in, translated text out: the one use case that all routes and the command line share."""

from collections.abc import AsyncIterator, Callable, Sequence

from service.translation.contract import (
    AUTO,
    Alternative,
    Detection,
    DoneEvent,
    Segment,
    SegmentEvent,
    StreamEvent,
    Timings,
    TokenEvent,
    TokenLogProb,
    Translation,
    TranslationLimits,
    TranslationOptions,
    TranslationResult,
)

__all__ = [
    "AUTO",
    "Alternative",
    "Detection",
    "DoneEvent",
    "Segment",
    "SegmentEvent",
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


class Translator:
    def __init__(
        self, catalog: object, detector: object, cache: object, limits: TranslationLimits, clock: Callable[[], float]
    ) -> None:
        raise NotImplementedError

    async def translate(
        self, texts: Sequence[str], source: str, target: str, options: TranslationOptions, tenant: str = ""
    ) -> TranslationResult:
        """Translate every text; cancelling the task cancels its jobs."""
        raise NotImplementedError

    def stream(
        self, text: str, source: str, target: str, options: TranslationOptions, tenant: str = ""
    ) -> AsyncIterator[StreamEvent]:
        """Events in the order of the text; the joined token events are the text that `translate` returns."""
        raise NotImplementedError

    def detect(self, text: str) -> list[Detection]:
        """The languages served, most likely first."""
        raise NotImplementedError
