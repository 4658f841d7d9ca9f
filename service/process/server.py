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

import uvicorn
from starlette.applications import Starlette

from dragoman.service.api.context import Lifecycle, Rooms
from dragoman.service.process.http_protocol import bounded_protocol
from dragoman.service.settings import Settings

log = logging.getLogger("dragoman.server")


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
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        loop="uvloop",
        http=bounded_protocol(rooms.limits.max_header_bytes, rooms.limits.header_timeout_seconds),
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
