"""Apps and servers for the tests of the HTTP service."""

import asyncio
import os
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from dragoman.service.api.edge_limits import DEFAULT_LIMITS, EdgeLimits
from dragoman.service.app import create_app
from dragoman.service.process.server import Server, make_server
from dragoman.service.settings import Settings
from tests.api.fakes import FakeTranslator, fake_parts

OpenClient = Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]
OpenServer = Callable[..., AbstractContextManager[str]]


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """A developer's own DRAGOMAN_* must not decide a test."""
    for name in list(os.environ):
        if name.startswith("DRAGOMAN_"):
            monkeypatch.delenv(name)


@pytest.fixture
def translator() -> FakeTranslator:
    return FakeTranslator()


@pytest.fixture
def open_client(translator: FakeTranslator) -> OpenClient:
    """A client of an app in this process, started as a server would start it."""

    @asynccontextmanager
    async def open_app(
        app: FastAPI | None = None, limits: EdgeLimits = DEFAULT_LIMITS, **settings: Any
    ) -> AsyncIterator[httpx.AsyncClient]:
        app = app or create_app(Settings(watch=False, **settings), build=fake_parts(translator), limits=limits)
        async with app.router.lifespan_context(app):
            transport = httpx.ASGITransport(app=app)
            async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
                client.app = app  # type: ignore[attr-defined]
                yield client

    return open_app


def open_http(timeout: float = 30.0) -> httpx.AsyncClient:
    """A client that does not spend its start on certificates, which nobody here uses."""
    return httpx.AsyncClient(verify=False, timeout=timeout)


class RunningServer:
    """A real server on the loopback interface, in a thread of its own."""

    def __init__(self, app: FastAPI, settings: Settings) -> None:
        self._listening = threading.Event()
        self._port = 0
        self.server: Server = make_server(app, settings, self._announce)
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _announce(self, sockets: Sequence[socket.socket]) -> None:
        self._port = sockets[0].getsockname()[1]
        self._listening.set()

    def _run(self) -> None:
        try:
            asyncio.run(self.server._serve())  # without signals, which belong to the main thread
        except SystemExit:
            self._listening.set()

    def __enter__(self) -> str:
        self._thread.start()
        assert self._listening.wait(30), "the server did not start"
        assert self._port, "the server did not start"
        return f"http://127.0.0.1:{self._port}"

    def __exit__(self, *exception: object) -> None:
        self.server.should_exit = True
        self._thread.join(30)
        assert not self._thread.is_alive(), "the server did not stop"


@pytest.fixture
def open_server(translator: FakeTranslator) -> OpenServer:
    @contextmanager
    def open_app(build: Any = None, limits: EdgeLimits = DEFAULT_LIMITS, **given: Any) -> Iterator[str]:
        """`build` is what `create_app` takes; without it the translator is a fake."""
        settings = Settings(**{"watch": False, "port": 0, "grace_seconds": 5, **given})
        app = create_app(settings, build=build or fake_parts(translator), limits=limits)
        with RunningServer(app, settings) as url:
            yield url

    return open_app
