"""HTTP whose headers are limited in size and in time, and which hears every caller leave.

uvicorn does neither with httptools, so this reaches into its protocol class. It is the only file that relies on
uvicorn's private parts; `tests/api/test_http_protocol.py` names all of them and fails when they change.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from dragoman.service.api.body import HEADERS_TOO_LARGE

_MOST_PIPELINED = 8  # requests that are read from one connection while an earlier one is being answered


class BoundedHttpProtocol(HttpToolsProtocol):
    max_header_bytes: int
    header_timeout_seconds: float

    _header_bytes = 0  # received of a request whose headers are not complete
    _deadline: asyncio.TimerHandle | None = None  # for the headers that are being received
    _answering: RequestResponseCycle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_clock()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        async def answer(scope: Any, receive: Any, send: Any) -> None:
            await app(scope, receive, send)
            if cycle.response_started and not cycle.response_complete and not cycle.disconnected:
                # The app gave the answer up: the caller does not read it. Closing would wait for the caller, so abort.
                cycle.disconnected = True
                self.transport.abort()

        self._answering = cycle
        super()._start_asgi_task(cycle, answer)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_clock()
        # uvicorn tells only the newest request that the client has gone. With pipelining, an older one is in work.
        if self._answering is not None and not self._answering.response_complete:
            self._answering.disconnected = True
            self._answering.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        clock = self._deadline
        super().data_received(data)
        # Count only if the same headers are still incomplete: else most of the data may be another request's body.
        if clock is not None and self._deadline is clock:
            self._header_bytes += len(data)
            if self._header_bytes > self.max_header_bytes:
                self._hang_up(b"HTTP/1.1 431 Request Header Fields Too Large\r\n")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._header_bytes = 0
        self._start_clock()

    def on_headers_complete(self) -> None:
        self._stop_clock()
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > self.max_header_bytes:
            self.scope["extensions"] = {HEADERS_TOO_LARGE: {"limit": self.max_header_bytes}}
        super().on_headers_complete()
        if 0 < len(self.pipeline) < _MOST_PIPELINED:
            self.flow.resume_reading()  # uvicorn stops reading behind a request in work, and would not see a hang-up

    def _start_clock(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(self.header_timeout_seconds, self._time_out)

    def _stop_clock(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _time_out(self) -> None:
        self._stop_clock()
        if self._is_answering and not self.transport.is_closing():
            self._start_clock()  # earlier requests are answered first, and meanwhile we may not even be reading
        else:
            self._hang_up(b"HTTP/1.1 408 Request Timeout\r\n")

    @property
    def _is_answering(self) -> bool:
        return bool(self.pipeline) or (self._answering is not None and not self._answering.response_complete)

    def _hang_up(self, status_line: bytes) -> None:
        self._stop_clock()
        if not self.transport.is_closing():
            self.transport.write(status_line + b"connection: close\r\ncontent-length: 0\r\n\r\n")
            self.transport.close()


def bounded_protocol(max_header_bytes: int, header_timeout_seconds: float) -> type[BoundedHttpProtocol]:
    """What uvicorn takes as its `http`: a class, which it calls for every connection."""
    limits = {"max_header_bytes": max_header_bytes, "header_timeout_seconds": header_timeout_seconds}
    return type("ConfiguredHttpProtocol", (BoundedHttpProtocol,), limits)
