"""Reads a request's body before anything else happens: no more than the limit, and in time.

All APIs take whole bodies, so a route sees a request only when all of it is here, and a slow or endless sender costs
a buffer and nothing more. A body that is too large is read to its end, within reason, and dropped: closing a
connection on a client that is still writing makes it see a reset instead of the answer.
"""

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dragoman.service.api.context import header_in
from dragoman.service.errors import ClientLeft, HeadersTooLarge, SlowBody, TooLarge

HEADERS_TOO_LARGE = "dragoman.headers_too_large"  # the server's extension of the scope: it counted them
DISCARD_FACTOR = 8  # how many times the limit is read and dropped, for the sake of a polite answer


class BoundedBody:
    """ASGI middleware; what it raises is answered by `Catch` around it."""

    def __init__(self, app: ASGIApp, max_bytes: int, timeout_seconds: float) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._timeout_seconds = timeout_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            async with asyncio.timeout(self._timeout_seconds):
                body = await self._read(scope, receive)
        except TimeoutError:
            raise SlowBody(f"The body did not arrive within {self._timeout_seconds:g} s.") from None
        await self._app(scope, replay(body, receive), send)

    async def _read(self, scope: Scope, receive: Receive) -> bytes:
        refused = (scope.get("extensions") or {}).get(HEADERS_TOO_LARGE)
        if refused:
            raise HeadersTooLarge(f"The request line and headers are larger than {refused['limit']} bytes.")
        self._refuse_early(scope)
        chunks: list[bytes] = []
        num_bytes, more = 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientLeft
            chunk, more = message.get("body", b""), message.get("more_body", False)
            num_bytes += len(chunk)
            if num_bytes <= self._max_bytes:
                chunks.append(chunk)
            elif num_bytes > self._max_bytes * DISCARD_FACTOR:
                break
        if num_bytes > self._max_bytes:
            raise self._too_large()
        return b"".join(chunks)

    def _refuse_early(self, scope: Scope) -> None:
        """A client that asks before it sends (`Expect: 100-continue`) is told at once."""
        if header_in(scope, b"expect") is None:
            return
        declared = header_in(scope, b"content-length") or ""
        if declared.isdigit() and int(declared) > self._max_bytes:
            raise self._too_large()

    def _too_large(self) -> TooLarge:
        return TooLarge(f"The body is larger than {self._max_bytes} bytes; send it in parts.")


def replay(body: bytes, receive: Receive) -> Receive:
    """Give the body once; after that only the connection's end is of interest."""
    given = False

    async def again() -> Message:
        nonlocal given
        if not given:
            given = True
            return {"type": "http.request", "body": body, "more_body": False}
        return await receive()

    return again
