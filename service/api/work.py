"""What the three APIs do alike once they know what is asked: charge the key, translate while the caller is there.

Reading a request and writing an answer is each API's own; checking the text, and all else, is the translator's.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import NamedTuple

from fastapi import Request

from dragoman.service.api.connection import while_connected
from dragoman.service.api.context import Rooms, record_in
from dragoman.service.api.limits import Caller
from dragoman.service.translation.contract import DoneEvent, StreamEvent, TranslationOptions, TranslationResult


class Order(NamedTuple):
    """A translation as asked for, in whichever API."""

    texts: Sequence[str]
    source: str
    target: str
    options: TranslationOptions


def let_in(request: Request, rooms: Rooms, key: str | None) -> Caller:
    """Check the key and the rate, and note who asks."""
    record = record_in(request.scope)
    caller = rooms.gate.admit(key, record.address)
    record.key = caller.key.name if caller.key else None
    return caller


async def translate(request: Request, rooms: Rooms, caller: Caller, order: Order) -> TranslationResult:
    note(request, order)
    with rooms.gate.charge(caller, num_characters(order.texts)):
        work = rooms.translator.translate(order.texts, order.source, order.target, order.options, caller.tenant)
        result = await while_connected(request.receive, work)
    _note_result(request, result)
    return result


async def stream(request: Request, rooms: Rooms, caller: Caller, order: Order) -> AsyncGenerator[StreamEvent, None]:
    """Closing the iterator, as an answer does whose caller left, cancels the work."""
    note(request, order)
    with rooms.gate.charge(caller, num_characters(order.texts)) as charge:
        events = rooms.translator.stream(order.texts[0], order.source, order.target, order.options, caller.tenant)
        async with aclosing(events):
            async for event in events:
                if isinstance(event, DoneEvent):
                    _note_result(request, event.result)
                charge.delivered = True
                yield event


def note(request: Request, order: Order) -> None:
    """Remember the request's size."""
    record = record_in(request.scope)
    record.num_texts, record.num_characters = len(order.texts), num_characters(order.texts)


def num_characters(texts: Sequence[str]) -> int:
    return sum(map(len, texts))


def _note_result(request: Request, result: TranslationResult) -> None:
    record = record_in(request.scope)
    record.timings = result.timings
    # Only now: a pair that was served has few values, and is nobody's text.
    sources = {translation.source for translation in result.translations}
    record.pair = f"{sources.pop()}-{result.target}" if len(sources) == 1 else "mixed"
