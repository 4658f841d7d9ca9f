"""Ask a translator over fake bundles, whole or streamed, and stop its engine for a moment."""

import asyncio
import threading
from typing import Any

from dragoman.service.translation.contract import (
    DoneEvent,
    StreamEvent,
    TokenEvent,
    Translation,
    TranslationOptions,
    TranslationResult,
)
from dragoman.service.translation.translator import Translator
from tests.bundles.fakes import FakeEngines, tokenizer
from tests.clock import Clock


async def translate(translator: Translator, text: str, **options: Any) -> Translation:
    result = await translator.translate([text], "pt", "en", TranslationOptions(**options))
    return result.translations[0]


async def events_of(translator: Translator, text: str, **options: Any) -> list[StreamEvent]:
    return [event async for event in translator.stream(text, "pt", "en", TranslationOptions(**options))]


def streamed_text(events: list[StreamEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TokenEvent))


def result_of(events: list[StreamEvent]) -> TranslationResult:
    assert isinstance(events[-1], DoneEvent)
    return events[-1].result


def reversed_text(text: str) -> str:
    """What a model that reverses tokens answers."""
    return tokenizer().decode(tokenizer().encode([text])[::-1])


def pass_time_from_the_third_step(engines: FakeEngines, clock: Clock) -> None:
    """Each further step takes ten seconds: a request with less time is late in mid-decode."""
    runner = engines.runners["pt-en 1"]
    third = runner.num_steps + 2
    runner.before_step = lambda step: setattr(clock, "now", clock.now + (10 if step >= third else 0))


class Hold:
    """Stops the runner before its next step until it is released, so that a test can act in mid-decode."""

    def __init__(self, engines: FakeEngines, label: str = "pt-en 1") -> None:
        self._reached, self._released = threading.Event(), threading.Event()
        engines.runners[label].before_step = self._wait

    def _wait(self, step: int) -> None:
        self._reached.set()
        assert self._released.wait(30)

    async def reached(self) -> None:
        assert await asyncio.to_thread(self._reached.wait, 30)

    def release(self) -> None:
        self._released.set()
