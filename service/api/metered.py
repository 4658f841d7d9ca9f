"""Translates for a caller, and keeps the accounts: the caller's key, rate and characters, and the request's record.

The same for all dialects, once they know what is asked. Reading a request and writing its answer is each dialect's own;
checking the text, and everything else, is the translator's.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from dragoman.service.api.connection import while_connected
from dragoman.service.api.request import ApiRequest
from dragoman.service.translation.contract import DoneEvent, StreamEvent, TranslationOptions, TranslationResult


async def let_in(request: ApiRequest) -> None:
    """Check the key and the rate; from now on the request has a caller. A caller who is refused learns nothing else."""
    record = request.record
    key = await record.dialect.find_key(request)
    caller = request.caller = request.rooms.gate.admit(key, record.address)
    record.key = caller.key.name if caller.key else None


async def translate(
    request: ApiRequest, texts: Sequence[str], source: str, target: str, options: TranslationOptions
) -> TranslationResult:
    rooms, caller = request.rooms, request.caller
    num_characters = note_texts(request, texts)
    with rooms.gate.charge(caller, num_characters), while_connected(request.receive):
        result = await rooms.translator.translate(texts, source, target, options, caller.tenant)
    _note_result(request, result)
    return result


async def stream(
    request: ApiRequest, text: str, source: str, target: str, options: TranslationOptions
) -> AsyncGenerator[StreamEvent, None]:
    """Closing the generator, as an answer does whose caller left, cancels the work."""
    rooms, caller = request.rooms, request.caller
    num_characters = note_texts(request, [text])
    with rooms.gate.charge(caller, num_characters) as charge:
        events = rooms.translator.stream(text, source, target, options, caller.tenant)
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
