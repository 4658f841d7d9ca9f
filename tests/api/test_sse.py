"""A stream of events ends with its reader, whether it says goodbye or not."""

import asyncio
from collections.abc import AsyncGenerator

import pytest
from starlette.types import Message

from dragoman.service.api.sse import Event, EventStream
from dragoman.service.errors import ClientLeft


async def stays() -> Message:
    await asyncio.Event().wait()
    raise AssertionError


async def test_a_write_that_does_not_end_is_a_caller_who_left() -> None:
    """And the work is told so, whatever its own deadline."""
    sent: list[Message] = []
    closed = asyncio.Event()

    async def events() -> AsyncGenerator[Event, None]:
        try:
            while True:
                yield "token", {"text": "a"}
        finally:
            closed.set()

    async def send(message: Message) -> None:
        sent.append(message)
        if len(sent) > 3:
            await asyncio.Event().wait()

    with pytest.raises(ClientLeft):
        await EventStream(events(), write_seconds=0)({"type": "http"}, stays, send)
    assert closed.is_set()
    assert len(sent) == 4


async def test_a_heartbeat_that_does_not_end_disturbs_nobody() -> None:
    """It is silent; the next event finds out for itself."""
    stuck = asyncio.Event()

    async def events() -> AsyncGenerator[Event, None]:
        await stuck.wait()
        yield "token", {"text": "a"}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.body":
            stuck.set()
            await asyncio.Event().wait()

    with pytest.raises(ClientLeft):
        await EventStream(events(), heartbeat_seconds=0, write_seconds=0)({"type": "http"}, stays, send)
