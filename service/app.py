"""`create_app`: puts the rooms together, lists the dialects, and orders the layers around every request.

A request passes `Tracking` (id and record), CORS and `Catch` (errors become answers) on its way to `Dispatch`, which
reads its body and calls the endpoint of its dialect. What happens at start, at the end and in between is in
`lifespan.py`; the process around the app is in `server.py`.
"""

import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import NoReturn

from fastapi import FastAPI
from fastapi.telemetry import TelemetryConfig
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request

from dragoman.service.api import pages
from dragoman.service.api.body import BodyReader
from dragoman.service.api.catch import Catch
from dragoman.service.api.context import Rooms
from dragoman.service.api.cors import Cors
from dragoman.service.api.dialects import deepl, kserve, libretranslate, native, operations
from dragoman.service.api.dialects.base import WARNINGS_HEADER, Dialect, DialectIndex
from dragoman.service.api.dispatch import Dispatch
from dragoman.service.api.edge_limits import DEFAULT_LIMITS, EdgeLimits
from dragoman.service.api.keys import KeyRing
from dragoman.service.api.limits import Gate, RateLimiter, Usage
from dragoman.service.api.openapi import extend_document
from dragoman.service.api.tracking import Tracking
from dragoman.service.assembly import Parts, build_parts, pair_label
from dragoman.service.catalog.catalog import ReloadReport
from dragoman.service.engine.loop import EngineSnapshot
from dragoman.service.process import cgroup
from dragoman.service.process.lifespan import lifespan_of
from dragoman.service.process.reload import Reloader
from dragoman.service.settings import Settings
from dragoman.service.telemetry.metrics import Metrics
from dragoman.service.telemetry.tracing import Tracing

# FastAPI's own would put query strings and exception messages, so possibly text, into spans and logs.
NO_TELEMETRY: TelemetryConfig = {"tracing": False, "metrics": False, "logs": False, "auto_configure": False}
# Where several have a path, they are asked in this order, and the last one takes what no other claims.
DIALECTS = (native.DIALECT, deepl.DIALECT, libretranslate.DIALECT, kserve.DIALECT, operations.DIALECT)
DESCRIPTION = (
    "A translation server. Every segment says how it ended; the same sentence gives the same bytes, whatever else is "
    "being translated. Next to the native API, DeepL's and LibreTranslate's clients work unchanged."
)

Clock = Callable[[], float]


def create_app(
    settings: Settings,
    build: Callable[[Settings, Metrics, Clock], Parts] = build_parts,
    clock: Clock = time.monotonic,
    tracing: Tracing | None = None,
    limits: EdgeLimits = DEFAULT_LIMITS,
    dialects: Sequence[Dialect] = DIALECTS,
) -> FastAPI:
    labels = tuple(dict.fromkeys(dialect.label for dialect in dialects))
    metrics = Metrics(apis=labels, throttled_seconds=cgroup.throttled_seconds)
    parts = build(settings, metrics, clock)
    usage = Usage(settings.state_dir)
    keys = KeyRing(settings.keys_file)
    reloader = Reloader(parts.catalog, keys, published=lambda report: _publish(parts, metrics, report))
    rooms = Rooms(
        settings=settings,
        limits=limits,
        metrics=metrics,
        gate=Gate(keys, RateLimiter(clock), usage, settings.requests_per_minute),
        catalog=parts.catalog,
        translator=parts.translator,
        snapshots=lambda: _snapshots(parts),
        reload=reloader.ask,
        clock=clock,
        started_at=clock(),
        explanations=parts.explanations,
    )
    metrics.watch_engines(rooms.snapshots)
    metrics.watch_memory(parts.catalog.memory)
    app = FastAPI(
        title="Dragoman",
        version=version("dragoman"),
        description=DESCRIPTION,
        lifespan=lifespan_of(parts.catalog, rooms, reloader),
        middleware=_middleware(settings, rooms, DialectIndex(dialects), tracing),
        exception_handlers={HTTPException: _pass_on},
        openapi_url="/openapi.json" if settings.pages else None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        telemetry=NO_TELEMETRY,
    )
    app.state.rooms = rooms
    _include_routes(app, settings, dialects)
    extend_document(app, dialects)
    return app


def _include_routes(app: FastAPI, settings: Settings, dialects: Sequence[Dialect]) -> None:
    for dialect in dialects:  # for the OpenAPI document: `Dispatch` runs them
        for router in dialect.routers:
            app.include_router(router)
    if settings.pages:
        app.include_router(pages.docs_router())
    if pages.has_playground(settings):
        app.include_router(pages.playground_router())


async def _pass_on(request: Request, error: Exception) -> NoReturn:
    """Let `Catch` answer for FastAPI's router, too: an unknown path, or a method that a path does not take."""
    raise error


def _middleware(settings: Settings, rooms: Rooms, dialects: DialectIndex, tracing: Tracing | None) -> list[Middleware]:
    """From the outside in."""
    body = BodyReader(settings.max_body_bytes, rooms.limits.body_timeout_seconds)
    layers = [
        Middleware(
            Tracking,
            dialects=dialects,
            metrics=rooms.metrics,
            lifecycle=rooms.lifecycle,
            clock=rooms.clock,
            log_requests=settings.access_log,
            tracing=tracing,
        ),
        Middleware(Catch),
        Middleware(Dispatch, dialects=dialects, rooms=rooms, body=body),
    ]
    if settings.cors_origins:
        cors = Middleware(
            Cors,
            allow_origins=settings.cors_origins,
            allow_methods=("GET", "POST"),
            allow_headers=("Authorization", "Content-Type", "X-Request-ID"),
            expose_headers=("Retry-After", "X-Request-ID", "Content-Language", WARNINGS_HEADER),
        )
        layers.insert(1, cors)
    return layers


def _publish(parts: Parts, metrics: Metrics, report: ReloadReport) -> None:
    for _ in report.failed:
        metrics.bundle_failed()
    metrics.set_bundles(
        (pair_label(bundle), bundle.name, bundle.version, bundle.precision) for bundle in parts.catalog.bundles()
    )


def _snapshots(parts: Parts) -> dict[str, EngineSnapshot]:
    return {pair_label(served.bundle): served.engine.snapshot() for served in parts.catalog.served()}
