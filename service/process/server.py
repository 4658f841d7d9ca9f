"""The process around the app: uvicorn, with bounded headers and a way to stop that loses nothing.

SIGTERM starts to drain, in two phases. First readiness is 503 while requests are still served, each answer with
`Connection: close`, for `drain_delay_seconds`: balancers learn that we are leaving. Then the listener closes, accepted
work finishes within `grace_seconds`, and the process exits with 0. SIGINT, which a person sends, starts at the second
phase. A second signal of either kind exits at once. SIGHUP reloads bundles and keys.
"""

import asyncio
import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import cast

import uvicorn
from starlette.applications import Starlette
from uvicorn._types import ASGI3Application, ASGIReceiveCallable, ASGISendCallable, Scope
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from dragoman.service.api.body import HEADERS_TOO_LARGE
from dragoman.service.api.context import Lifecycle, Rooms
from dragoman.service.settings import Settings

_MOST_PIPELINED = 8  # requests of one connection that may wait behind the one in work, and be read

log = logging.getLogger("dragoman.server")


class BoundedHttpProtocol(HttpToolsProtocol):
    """HTTP whose headers are limited in size and in time; uvicorn itself limits neither with httptools."""

    max_header_bytes: int
    header_timeout_seconds: float

    _header_bytes = 0  # of the request being read, while its headers are not complete
    _deadline: asyncio.TimerHandle | None = None
    _answering: RequestResponseCycle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_clock()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        async def answer(scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
            await app(scope, receive, send)
            if cycle.response_started and not cycle.response_complete and not cycle.disconnected:
                # Given up because nobody reads it: closing would wait until somebody does.
                cycle.disconnected = True
                self.transport.abort()

        self._answering = cycle
        super()._start_asgi_task(cycle, cast(ASGI3Application, answer))

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_clock()
        # uvicorn tells only the newest request that its client has gone, and behind pipelined ones an older one works.
        if self._answering is not None and not self._answering.response_complete:
            self._answering.disconnected = True
            self._answering.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        clock = self._deadline
        super().data_received(data)
        # Still in the same headers. What came with the end of another request may be mostly that one's body.
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
            self.flow.resume_reading()  # uvicorn reads no more behind a request in work, and hears nobody leave

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
            self._start_clock()  # the answers come first; behind many of them we do not even read
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


class Server(uvicorn.Server):
    """uvicorn's server with our signals. `announce` is called with the sockets once it listens."""

    def __init__(
        self,
        config: uvicorn.Config,
        lifecycle: Lifecycle,
        drain_delay_seconds: float,
        reload: Callable[[], None],
        announce: Callable[[Sequence[socket.socket]], None] = lambda sockets: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(config)
        self._lifecycle = lifecycle
        self._drain_delay_seconds = drain_delay_seconds
        self._reload = reload
        self._announce = announce
        self._clock = clock
        self._close_at: float | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        if self.started:
            self._announce([sock for server in self.servers for sock in server.sockets])

    async def on_tick(self, counter: int) -> bool:
        if self._close_at is not None and self._clock() >= self._close_at:
            log.info("no longer listening; finishing accepted requests")
            self.should_exit = True
        return await super().on_tick(counter)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._lifecycle.draining:
            log.warning("second signal: exiting at once")
            os._exit(1)  # whatever hangs, hangs no longer
        self._lifecycle.draining = True
        delay = self._drain_delay_seconds if sig == signal.SIGTERM else 0.0
        self._close_at = self._clock() + delay
        log.info("draining", extra={"signal": signal.Signals(sig).name, "drain_delay_seconds": delay})

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Ours instead of uvicorn's, which raises the signal again at the end: a drained server exits with 0."""
        handlers = {signal.SIGTERM: self.handle_exit, signal.SIGINT: self.handle_exit, signal.SIGHUP: self._hang_up}
        previous = {sig: signal.signal(sig, handler) for sig, handler in handlers.items()}
        try:
            yield
        finally:
            for sig, handler in previous.items():
                signal.signal(sig, handler)

    def _hang_up(self, sig: int, frame: FrameType | None) -> None:
        # A signal handler runs between two instructions of anything; the loop is where a reload belongs.
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._reload)


def make_server(
    app: Starlette, settings: Settings, announce: Callable[[Sequence[socket.socket]], None] = lambda sockets: None
) -> Server:
    rooms: Rooms = app.state.rooms
    protocol = type(
        "ConfiguredHttpProtocol",
        (BoundedHttpProtocol,),
        {
            "max_header_bytes": rooms.limits.max_header_bytes,
            "header_timeout_seconds": rooms.limits.header_timeout_seconds,
        },
    )
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        loop="uvloop",
        http=protocol,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        limit_concurrency=settings.max_connections,
        timeout_keep_alive=settings.keep_alive_seconds,
        timeout_graceful_shutdown=round(settings.grace_seconds),
        forwarded_allow_ips=settings.forwarded_allow_ips,
    )
    return Server(config, rooms.lifecycle, settings.drain_delay_seconds, rooms.reload, announce)
