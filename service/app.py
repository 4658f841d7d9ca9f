"""`create_app`: puts the rooms together, and says what happens to a request before and after its route.

A request passes `Tracking` (id and record), CORS, `Catch` (errors become answers) and `BoundedBody` on its way to a
route. What happens at start, at the end and in between is `lifespan.py`'s; the process around the app is `server.py`'s.
"""

import time
from collections.abc import Callable
from importlib.metadata import version

from fastapi import FastAPI
from fastapi.telemetry import TelemetryConfig
from starlette.middleware import Middleware

from dragoman.service.api import deepl, explain, libretranslate, live, native, operations, pages
from dragoman.service.api.body import BoundedBody
from dragoman.service.api.catch import Catch
from dragoman.service.api.context import Rooms
from dragoman.service.api.cors import Cors
from dragoman.service.api.edge_limits import DEFAULT_LIMITS, EdgeLimits
from dragoman.service.api.keys import KeyRing
from dragoman.service.api.limits import Gate, RateLimiter, Usage
from dragoman.service.api.refusals import exception_handlers
from dragoman.service.api.shortcut import Shortcut
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
DIALECTS = (native.DIALECT, deepl.DIALECT, libretranslate.DIALECT, operations.DIALECT)
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
) -> FastAPI:
    metrics = Metrics(throttled_seconds=cgroup.throttled_seconds)
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
    app = FastAPI(
        title="Dragoman",
        version=version("dragoman"),
        description=DESCRIPTION,
        lifespan=lifespan_of(parts.catalog, rooms, reloader),
        middleware=_middleware(settings, rooms, tracing),
        exception_handlers=dict(exception_handlers(DIALECTS)),
        openapi_url="/openapi.json" if settings.pages else None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        telemetry=NO_TELEMETRY,
    )
    app.state.rooms = rooms
    _include_routes(app, settings)
    pages.document_keys(app)
    return app


def _include_routes(app: FastAPI, settings: Settings) -> None:
    for module in (native, explain, live, deepl, libretranslate, operations):
        app.include_router(module.router)
    if settings.pages:
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
        Middleware(Catch, dialects=DIALECTS),
        Middleware(BoundedBody, max_bytes=settings.max_body_bytes, timeout_seconds=rooms.limits.body_timeout_seconds),
        Middleware(Shortcut),
    ]
    if settings.cors_origins:
        cors = Middleware(
            Cors,
            allow_origins=settings.cors_origins,
            allow_methods=("GET", "POST"),
            allow_headers=("Authorization", "Content-Type", "X-Request-ID"),
            expose_headers=("Retry-After", "X-Request-ID"),
        )
        layers.insert(1, cors)
    return layers


def _publish(parts: Parts, metrics: Metrics, report: ReloadReport) -> None:
    metrics.bundles_loaded(len(report.loaded), len(report.failed))
    metrics.set_bundles(
        (pair_label(bundle), bundle.name, bundle.version, bundle.precision) for bundle in parts.catalog.bundles()
    )


def _snapshots(parts: Parts) -> dict[str, EngineSnapshot]:
    return {pair_label(served.bundle): served.engine.snapshot() for served in parts.catalog.served()}
