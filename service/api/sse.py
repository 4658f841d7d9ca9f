"""Server-sent events: an async generator of (event, data) as a response.

The generator is closed when the caller leaves, and a comment is sent now and then so that proxies keep a silent
connection open. A caller that stops reading, so that a write takes longer than `WRITE_SECONDS`, counts as gone: the
work would otherwise be kept for as long as the connection lasts, whatever its deadline.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any

import orjson
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from dragoman.service.api.connection import while_connected
from dragoman.service.errors import ClientLeft

MEDIA_TYPE = "text/event-stream"
HEARTBEAT_SECONDS = 15.0
WRITE_SECONDS = 30.0  # the most that one write may take
HEARTBEAT = b": still here\n\n"

Event = tuple[str, Any]  # name, and data that orjson can write


def document_events(*names: str) -> dict[str, Any]:
    """The content of a documented response: one event, whose data is JSON."""
    properties = {"event": {"type": "string", "enum": list(names)}, "data": {"type": "string"}}
    return {MEDIA_TYPE: {"schema": {"type": "object", "properties": properties, "required": ["event", "data"]}}}


class EventStream(Response):
    media_type = MEDIA_TYPE

    def __init__(
        self,
        events: AsyncGenerator[Event, None],
        heartbeat_seconds: float = HEARTBEAT_SECONDS,
        write_seconds: float = WRITE_SECONDS,
    ) -> None:
        super().__init__(headers={"X-Accel-Buffering": "no"})  # nginx would otherwise collect the tokens
        del self.headers["content-length"]
        self._events = events
        self._heartbeat_seconds, self._write_seconds = heartbeat_seconds, write_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            with while_connected(receive):
                await self._send_all(send)
        finally:
            await self._events.aclose()

    async def _send_all(self, send: Send) -> None:
        await self._write(send, {"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        heart = asyncio.ensure_future(self._beat(send))
        try:
            async for event in self._events:
                await self._write(send, _part(encode(event)))
        finally:
            heart.cancel()
        await self._write(send, {"type": "http.response.body", "body": b"", "more_body": False})

    async def _beat(self, send: Send) -> None:
        with suppress(ClientLeft):  # the next event meets the same, and ends the stream
            while True:
                await asyncio.sleep(self._heartbeat_seconds)
                await self._write(send, _part(HEARTBEAT))

    async def _write(self, send: Send, message: Message) -> None:
        try:
            async with asyncio.timeout(self._write_seconds):
                await send(message)
        except TimeoutError:
            raise ClientLeft from None


def encode(event: Event) -> bytes:
    name, data = event
    return b"event: %s\ndata: %s\n\n" % (name.encode(), orjson.dumps(data))


def _part(content: bytes) -> Message:
    return {"type": "http.response.body", "body": content, "more_body": True}
