"""Reads a request's body before anything else happens: no more than the limit, and in time.

All APIs take whole bodies, so an endpoint sees a request only when all of it is here, and a slow or endless sender
costs a buffer and nothing more. A body that is too large is read to its end, within reason, and dropped: closing a
connection on a client that is still writing makes it see a reset instead of the answer.
"""

import asyncio

from starlette.types import Receive, Scope

from dragoman.service.api.context import header_in
from dragoman.service.errors import ClientLeft, HeadersTooLarge, SlowBody, TooLarge

HEADERS_TOO_LARGE = "dragoman.headers_too_large"  # an extension of the scope, set by the server that counted them
DISCARD_FACTOR = 8  # how many times the limit is read and dropped, so that the client sees the answer


class BodyReader:
    def __init__(self, max_bytes: int, timeout_seconds: float) -> None:
        self._max_bytes = max_bytes
        self._timeout_seconds = timeout_seconds

    async def read(self, scope: Scope, receive: Receive) -> bytes:
        """The whole body. Raises one of our refusals, or ClientLeft."""
        refused = (scope.get("extensions") or {}).get(HEADERS_TOO_LARGE)
        if refused:
            raise HeadersTooLarge(f"The request line and headers are larger than {refused['limit']} bytes; send less.")
        self._refuse_early(scope)
        try:
            async with asyncio.timeout(self._timeout_seconds):
                return await self._read_all(receive)
        except TimeoutError:
            raise SlowBody(f"The body did not arrive within {self._timeout_seconds:g} s; send it in parts.") from None

    async def _read_all(self, receive: Receive) -> bytes:
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
