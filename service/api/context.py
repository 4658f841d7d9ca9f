"""What an endpoint may use: the rooms of the service, and the record of the request it answers.

`app.py` fills `Rooms` once; `tracking.py` opens a `RequestRecord` for each request, and endpoints note in it what the
log, the metrics and the trace should know. Nothing here holds any of a request's text.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from starlette.types import Scope

from dragoman.service.api.edge_limits import EdgeLimits
from dragoman.service.api.limits import Gate
from dragoman.service.bundles.manifest import Bundle
from dragoman.service.catalog.routes import Route
from dragoman.service.catalog.served import BundleStatus
from dragoman.service.engine.loop import EngineSnapshot
from dragoman.service.settings import Settings
from dragoman.service.telemetry.metrics import Metrics
from dragoman.service.translation.contract import NO_TIME, Timings
from dragoman.service.translation.explanations import Explanations
from dragoman.service.translation.translator import Translator

if TYPE_CHECKING:
    from dragoman.service.api.dialects.base import Dialect


@dataclass
class Lifecycle:
    """Whether the server is loading, serving or draining: set by `server.py` and `lifespan.py`, read by probes."""

    loaded: bool = False
    draining: bool = False

    @property
    def ready(self) -> bool:
        return self.loaded and not self.draining


class CatalogView(Protocol):
    """What endpoints ask of the catalog."""

    def bundles(self) -> Sequence[Bundle]: ...
    def statuses(self) -> Sequence[BundleStatus]: ...
    def routes(self) -> Sequence[Route]: ...


@dataclass
class Watchers:
    """How many pages watch `/v1/live`."""

    count: int = 0


@dataclass(frozen=True)
class Rooms:
    settings: Settings
    limits: EdgeLimits
    metrics: Metrics
    gate: Gate
    catalog: CatalogView
    translator: Translator
    snapshots: Callable[[], Mapping[str, EngineSnapshot]]  # by pair
    reload: Callable[[], None]  # soon, on the event loop
    clock: Callable[[], float]
    started_at: float
    lifecycle: Lifecycle = field(default_factory=Lifecycle)
    watchers: Watchers = field(default_factory=Watchers)
    explanations: Explanations | None = None


@dataclass
class RequestRecord:
    """What is known about a request, for the log line, the metrics and the trace."""

    request_id: str
    dialect: "Dialect"  # as the path tells; where several share it, as the request's shape tells
    method: str
    address: str
    started_at: float
    trace_parent: str | None = None
    route: str = "unmatched"  # a declared path, never one that a caller made up
    key: str | None = None
    pair: str | None = None
    num_texts: int = 0
    num_characters: int = 0
    timings: Timings = NO_TIME
    status: int | None = None
    reason: str | None = None
    client_left: bool = False

    @property
    def translates(self) -> bool:
        return self.num_texts > 0


def header_in(scope: Scope, name: bytes) -> str | None:
    """The first header of this name; servers give names in small letters."""
    for each, value in scope["headers"]:
        if each == name:
            return str(value, "latin-1")
    return None
