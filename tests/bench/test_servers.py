"""The peer with dynamic batching must be a fair one: full batches, short waits, everyone's own answer."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from bench.servers.ctranslate2_server import Batcher


class Shouting:
    """Translates by shouting, and remembers its batches."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []

    def __call__(self, texts: Sequence[str]) -> list[str]:
        self.batches.append(list(texts))
        return [text.upper() for text in texts]


async def ask_all(batcher: Batcher, requests: Sequence[Sequence[str]]) -> list[list[str]]:
    questions = [asyncio.ensure_future(batcher.translate(texts)) for texts in requests]
    worker = asyncio.create_task(batcher.work())
    answers = await asyncio.gather(*questions)
    worker.cancel()
    with suppress(asyncio.CancelledError):
        await worker
    return answers


async def test_whoever_waits_is_put_into_full_batches() -> None:
    """A batch that left half empty would make the peer slower than it is."""
    shouting = Shouting()
    answers = await ask_all(Batcher(shouting, 4, 0.0), [[f"a{i}"] for i in range(10)])
    assert answers == [[f"A{i}"] for i in range(10)]
    assert [len(batch) for batch in shouting.batches] == [4, 4, 2]


async def test_the_texts_of_a_request_stay_together() -> None:
    """Answers are handed out by count: a slip would give one caller another's text."""
    shouting = Shouting()
    answers = await ask_all(Batcher(shouting, 3, 0.0), [["a", "b"], ["c", "d"], ["e"]])
    assert answers == [["A", "B"], ["C", "D"], ["E"]]
    assert shouting.batches == [["a", "b", "c", "d"], ["e"]]


async def test_a_lonely_request_does_not_wait_for_company_for_ever() -> None:
    shouting = Shouting()
    assert await ask_all(Batcher(shouting, 100, 0.001), [["a"]]) == [["A"]]
