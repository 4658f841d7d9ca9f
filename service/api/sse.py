"""Server-sent events: an async generator of (event, data) as a response.

The generator is closed when the caller leaves, and a comment is sent now and then so that proxies keep a silent
connection open.
"""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import orjson
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from service.api.connection import while_connected

MEDIA_TYPE = "text/event-stream"
HEARTBEAT_SECONDS = 15.0
HEARTBEAT = b": still here\n\n"

Event = tuple[str, Any]  # name, and data that orjson can write


def document_events(*names: str) -> dict[str, Any]:
    """The content of a documented response: one event, whose data is JSON."""
    properties = {"event": {"type": "string", "enum": list(names)}, "data": {"type": "string"}}
    return {MEDIA_TYPE: {"schema": {"type": "object", "properties": properties, "required": ["event", "data"]}}}


class EventStream(Response):
    media_type = MEDIA_TYPE

    def __init__(self, events: AsyncGenerator[Event, None], heartbeat_seconds: float = HEARTBEAT_SECONDS) -> None:
        super().__init__(headers={"X-Accel-Buffering": "no"})  # nginx would otherwise collect the tokens
        del self.headers["content-length"]
        self._events = events
        self._heartbeat_seconds = heartbeat_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await while_connected(receive, self._send_all(send))
        finally:
            await self._events.aclose()

    async def _send_all(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        heart = asyncio.ensure_future(self._beat(send))
        try:
            async for event in self._events:
                await _send_part(send, encode(event))
        finally:
            heart.cancel()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _beat(self, send: Send) -> None:
        while True:
            await asyncio.sleep(self._heartbeat_seconds)
            await _send_part(send, HEARTBEAT)


def encode(event: Event) -> bytes:
    name, data = event
    return b"event: %s\ndata: %s\n\n" % (name.encode(), orjson.dumps(data))


async def _send_part(send: Send, part: bytes) -> None:
    await send({"type": "http.response.body", "body": part, "more_body": True})
