"""Translates for a caller, and keeps the accounts: the caller's key, rate and characters, and the request's record.

The same for all dialects, once they know what is asked. Reading a request and writing its answer is each dialect's own;
checking the text, and everything else, is the translator's.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from dragoman.service.api.api_request import ApiRequest
from dragoman.service.api.connection import while_connected
from dragoman.service.translation.contract import DoneEvent, StreamEvent, TranslationOptions, TranslationResult


async def let_in(request: ApiRequest) -> None:
    """Check the caller's key and rate before anything else: a caller who is refused learns nothing more."""
    record = request.record
    key = request.key = request.rooms.gate.admit(await record.dialect.find_key(request), record.address)
    record.key = key.name if key else None


async def translate(
    request: ApiRequest, texts: Sequence[str], source: str, target: str, options: TranslationOptions
) -> TranslationResult:
    rooms, num_characters = request.rooms, note_texts(request, texts)
    with rooms.gate.charge(request.key, num_characters), while_connected(request.receive):
        result = await rooms.translator.translate(texts, source, target, options, request.tenant)
    _note_result(request, result)
    return result


async def stream(
    request: ApiRequest, text: str, source: str, target: str, options: TranslationOptions
) -> AsyncGenerator[StreamEvent, None]:
    """Closing the generator, as an answer does whose caller left, cancels the work."""
    rooms, num_characters = request.rooms, note_texts(request, [text])
    with rooms.gate.charge(request.key, num_characters) as charge:
        events = rooms.translator.stream(text, source, target, options, request.tenant)
        async with aclosing(events):
            async for event in events:
                if isinstance(event, DoneEvent):
                    _note_result(request, event.result)
                charge.delivered = True
                yield event


def note_texts(request: ApiRequest, texts: Sequence[str]) -> int:
    """Note the request's size in its record; returns the number of characters."""
    record = request.record
    record.num_texts, record.num_characters = len(texts), sum(map(len, texts))
    return record.num_characters


def _note_result(request: ApiRequest, result: TranslationResult) -> None:
    record = request.record
    record.timings = result.timings
    # Only now: pairs that are served are few, and a pair that was only asked for could be anything.
    sources = {translation.source for translation in result.translations}
    record.pair = f"{sources.pop()}-{result.target}" if len(sources) == 1 else "mixed"
