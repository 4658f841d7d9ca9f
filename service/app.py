"""`create_app`: puts the rooms together, and says what happens to a request before and after its route.

A request passes `Tracking` (id, record, last catch), CORS and `BoundedBody` on its way to a route. At start the bundles
are loaded and checked; the server listens only when that is done. The process around the app is `server.py`'s.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI
from fastapi.telemetry import TelemetryConfig
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware

from service.api import deepl, explain, libretranslate, live, native, operations, pages
from service.api.body import BoundedBody
from service.api.context import Rooms
from service.api.keys import KeyRing
from service.api.limits import Gate, RateLimiter, Usage
from service.api.refusals import exception_handlers
from service.api.tracking import Tracking
from service.assembly import Parts, build_parts, pair_label
from service.engine.loop import EngineSnapshot
from service.metrics import Metrics
from service.reload import Reloader
from service.settings import Settings
from service.telemetry import Tracing

SAVE_USAGE_SECONDS = 5.0
WARM_DETECTOR_SECONDS = 3.0  # after the start, which has enough to do
# FastAPI's own would put query strings and exception messages, so possibly text, into spans and logs.
NO_TELEMETRY: TelemetryConfig = {"tracing": False, "metrics": False, "logs": False, "auto_configure": False}
DIALECTS = (native.DIALECT, deepl.DIALECT, libretranslate.DIALECT, operations.DIALECT)
DESCRIPTION = (
    "A translation server. Every segment says how it ended; the same sentence gives the same bytes, whatever else is "
    "being translated. Next to the native API, DeepL's and LibreTranslate's clients work unchanged."
)

log = logging.getLogger("dragoman.app")

Clock = Callable[[], float]


class NothingServesError(Exception):
    """No bundle passed its checks at start."""


def create_app(
    settings: Settings,
    build: Callable[[Settings, Metrics, Clock], Parts] = build_parts,
    clock: Clock = time.monotonic,
    tracing: Tracing | None = None,
) -> FastAPI:
    metrics = Metrics()
    parts = build(settings, metrics, clock)
    usage = Usage(settings.state_dir)
    keys = KeyRing(settings.keys_file)
    reloader = Reloader(parts.catalog, keys, published=lambda: _publish(parts, metrics))
    rooms = Rooms(
        settings=settings,
        metrics=metrics,
        gate=Gate(keys, RateLimiter(clock), usage, settings.require_key, settings.requests_per_minute),
        catalog=parts.catalog,
        translator=parts.translator,
        snapshots=lambda: _snapshots(parts),
        reload=reloader.ask,
        clock=clock,
        started_at=clock(),
        explanations=parts.explanations,
    )
    metrics.watch_engines(rooms.snapshots)
    app = FastAPI(
        title="Dragoman",
        version=version("dragoman"),
        description=DESCRIPTION,
        lifespan=_lifespan(parts, rooms, reloader),
        middleware=_middleware(settings, rooms, tracing),
        exception_handlers=dict(exception_handlers(DIALECTS)),
        openapi_url="/openapi.json" if settings.docs else None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        telemetry=NO_TELEMETRY,
    )
    app.state.rooms = rooms
    _include_routes(app, settings)
    return app


def _include_routes(app: FastAPI, settings: Settings) -> None:
    for module in (native, explain, live, deepl, libretranslate, operations):
        app.include_router(module.router)
    if settings.docs:
        app.include_router(pages.docs_router())
    if pages.has_playground(settings):
        app.include_router(pages.playground_router())


def _middleware(settings: Settings, rooms: Rooms, tracing: Tracing | None) -> list[Middleware]:
    """From the outside in."""
    layers = [
        Middleware(
            Tracking,
            dialects=DIALECTS,
            metrics=rooms.metrics,
            lifecycle=rooms.lifecycle,
            clock=rooms.clock,
            log_requests=settings.access_log,
            tracing=tracing,
        ),
        Middleware(BoundedBody, max_bytes=settings.max_body_bytes, timeout_seconds=settings.body_timeout_seconds),
    ]
    if settings.cors_origins:
        cors = Middleware(
            CORSMiddleware,
            allow_origins=settings.cors_origins,
            allow_methods=("GET", "POST"),
            allow_headers=("Authorization", "Content-Type", "X-Request-ID"),
            expose_headers=("Retry-After", "X-Request-ID"),
        )
        layers.insert(1, cors)
    return layers


def _lifespan(parts: Parts, rooms: Rooms, reloader: Reloader) -> Callable[[FastAPI], Any]:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await reloader.reload()
        if not parts.catalog.routes():
            await asyncio.to_thread(parts.catalog.close, drain=False)
            log.error("no bundle can serve; the lines above say why, `dragoman doctor` tells more")
            raise NothingServesError
        rooms.lifecycle.loaded, rooms.lifecycle.draining = True, False
        tasks = [asyncio.create_task(work) for work in _background(rooms, reloader)]
        try:
            yield
        finally:
            rooms.lifecycle.draining = True
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            rooms.gate.usage.save()
            await asyncio.to_thread(parts.catalog.close, drain=True)

    return lifespan


def _background(rooms: Rooms, reloader: Reloader) -> list[Any]:
    settings = rooms.settings
    work = [reloader.run(), _save_usage(rooms.gate.usage), _warm_detector(rooms)]
    if settings.watch and settings.bundles is not None:
        work.append(reloader.watch(settings.bundles, recursive=True))
    if settings.watch and settings.keys_file is not None:
        # The file is replaced by renaming another onto it, so it is its directory that tells.
        work.append(reloader.watch(settings.keys_file.parent, recursive=False))
    return work


async def _save_usage(usage: Usage) -> None:
    while True:
        await asyncio.sleep(SAVE_USAGE_SECONDS)
        await asyncio.to_thread(usage.save)


async def _warm_detector(rooms: Rooms) -> None:
    """Detection reads its model when it is first used, which takes a second: better now, than from a caller's time."""
    await asyncio.sleep(WARM_DETECTOR_SECONDS)
    await asyncio.to_thread(rooms.translator.detect, "Bom dia")


def _publish(parts: Parts, metrics: Metrics) -> None:
    metrics.set_bundles(
        (pair_label(bundle), bundle.name, bundle.version, bundle.precision) for bundle in parts.catalog.bundles()
    )


def _snapshots(parts: Parts) -> dict[str, EngineSnapshot]:
    return {pair_label(served.bundle): served.engine.snapshot() for served in parts.catalog.served()}
