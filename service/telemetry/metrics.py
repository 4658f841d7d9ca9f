"""Every metric, declared once; the only file that knows `prometheus_client`.

`Metrics` holds them on the registry it is given. The engine reports through `PairObserver` (its `Observer`
protocol), HTTP through `request_finished` and `rejected`, bundles and the cache through the methods named after them.
Counts live in `tallies.py`; they are read, like the engine's gauges, when somebody scrapes. Labels have few values, and
every child exists from the start, so that a rate is 0 rather than absent until something happens.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Generic, Literal, Protocol, TypeVar, get_args

from prometheus_client import CollectorRegistry, Gauge, ProcessCollector
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from dragoman.service.engine.job import FinishReason
from dragoman.service.errors import error_types
from dragoman.service.telemetry.tallies import Count, Histogram

# ok: answered; invalid: the caller's mistake; refused: not now (429, 503, 504); failed: ours; cancelled: caller left
Outcome = Literal["ok", "invalid", "refused", "failed", "cancelled"]
CacheResult = Literal["hit", "miss", "shared"]  # shared: the same segment was being decoded already
LoadOutcome = Literal["loaded", "failed"]
MIXED_PAIR, NO_PAIR = "mixed", "none"  # a request with texts of several languages; one that was not translated

# Seconds, from 0.5 ms: a decoder step of a small model takes 1 ms, a document minutes.
SECONDS = (
    *(0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075),
    *(0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 30.0, 60.0),
)
STEP_SECONDS = tuple(bound for bound in SECONDS if bound <= 0.5)
ROWS = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)


class EngineGauges(Protocol):
    """What a scrape reads from an engine."""

    @property
    def active_rows(self) -> int: ...
    @property
    def row_capacity(self) -> int: ...
    @property
    def queued_segments(self) -> int: ...
    @property
    def queued_tokens(self) -> int: ...


@dataclass(frozen=True)
class MetricRow:
    name: str
    kind: str
    labels: tuple[str, ...]
    description: str


class Metrics:
    def __init__(
        self,
        registry: CollectorRegistry | None = None,
        apis: tuple[str, ...] = (),
        throttled_seconds: Callable[[], float | None] = lambda: None,
    ) -> None:
        """`apis` are the dialects' labels, whose series exist from the start."""
        self._apis = apis
        registry = self.registry = registry or CollectorRegistry()  # never the global one of the library
        self._read_engines: Callable[[], Mapping[str, EngineGauges]] = dict
        self._read_memory: Callable[[], tuple[int, int]] = lambda: (0, 0)
        self._declare_http()
        self._declare_engine()
        self._declare_bundles()
        ProcessCollector(registry=registry)
        registry.register(_Throttling(throttled_seconds))

    def _declare_http(self) -> None:
        self._requests = self._counter("requests", "Requests by API and outcome", ("api", "outcome"))
        self._request_seconds = self._histogram(
            "request_duration_seconds",
            "From the first byte of a request that translates to its last answer",
            ("api", "pair"),
        )
        self._rejected = self._counter("rejected", "Requests refused, by reason", ("reason",))
        self._cache_lookups = self._counter("cache_lookups", "Segments looked up before decoding", ("result",))
        for api in self._apis:
            for pair in (MIXED_PAIR, NO_PAIR):
                self._request_seconds.labels(api, pair)
            for outcome in get_args(Outcome):
                self._requests.labels(api, outcome)
        for error_type in error_types():
            self._rejected.labels(error_type.reason)
        for result in get_args(CacheResult):
            self._cache_lookups.labels(result)

    def _declare_engine(self) -> None:
        pair = ("pair",)
        self._queue_seconds = self._histogram("queue_wait_seconds", "From submission to a row of the batch", pair)
        self._first_token_seconds = self._histogram("first_token_seconds", "From submission to the first token", pair)
        self._encode_seconds = self._histogram("encode_seconds", "One encoder run", pair, STEP_SECONDS)
        self._step_seconds = self._histogram("decode_step_seconds", "One decoder step of the batch", pair, STEP_SECONDS)
        self._batch_rows = self._histogram("batch_rows", "Rows in a decoder step", pair, ROWS)
        self._source_tokens = self._counter("source_tokens", "Source tokens of finished segments", pair)
        self._target_tokens = self._counter("target_tokens", "Tokens generated for finished segments", pair)
        self._segments = self._counter("segments", "Finished segments, by how they ended", ("pair", "finish_reason"))
        self._cancelled = self._counter("cancelled", "Segments dropped because their caller left", pair)
        self._busy_seconds = self._counter("engine_busy_seconds", "Time the decode loops worked", pair)
        self._active_rows = self._gauge("active_rows", "Rows being decoded now", pair)
        self._row_capacity = self._gauge("row_capacity", "Rows that can be decoded at one time", pair)
        self._queued_segments = self._gauge("queued_segments", "Segments waiting for a row", pair)
        self._queued_tokens = self._gauge("queued_tokens", "Source tokens waiting for a row", pair)
        self._threads = self._gauge("runtime_threads", "Threads that decode", ())

    def _declare_bundles(self) -> None:
        labels = ("pair", "name", "version", "precision")
        self._bundle_info = self._gauge("bundle_info", "1 for each bundle that serves", labels)
        self._bundle_loads = self._counter("bundle_loads", "Attempts to load a bundle", ("outcome",))
        for outcome in get_args(LoadOutcome):
            self._bundle_loads.labels(outcome)
        self._bundle_load_seconds = self._histogram("bundle_load_seconds", "To load a bundle and check it", ())
        self._bundle_load_seconds.labels()
        self._bundle_evictions = self._counter("bundle_evictions", "Bundles let go to make room, or replaced", ())
        self._bundle_evictions.labels()
        self._resident_bundles = self._gauge("resident_bundles", "Bundles in memory", ())
        self._resident_bytes = self._gauge("resident_bundle_bytes", "Memory of bundles, as estimated", ())

    def _counter(self, name: str, description: str, labels: tuple[str, ...]) -> "_Counts":
        return _Counts(f"dragoman_{name}", description, labels, self.registry)

    def _gauge(self, name: str, description: str, labels: tuple[str, ...]) -> Gauge:
        return Gauge(name, description, labels, namespace="dragoman", registry=self.registry)

    def _histogram(
        self, name: str, description: str, labels: tuple[str, ...], buckets: tuple[float, ...] = SECONDS
    ) -> "_Histograms":
        return _Histograms(f"dragoman_{name}", description, labels, self.registry, buckets)

    # HTTP

    def request_finished(self, api: str, outcome: Outcome, seconds: float | None, pair: str | None = None) -> None:
        """Count a request; `seconds` is None for those that do not translate, such as probes.

        `pair` is the pair that was translated, never the one in the request: no caller may add series.
        """
        self._requests.labels(api, outcome).add()
        if seconds is not None:
            self._request_seconds.labels(api, pair or NO_PAIR).observe(seconds)

    def rejected(self, reason: str) -> None:
        self._rejected.labels(reason).add()

    def cache_looked_up(self, result: CacheResult) -> None:
        self._cache_lookups.labels(result).add()

    # Bundles and engines

    def observer(self, pair: str) -> "PairObserver":
        """What an engine reports to; its series exist from now on."""
        for api, each in product(self._apis, pair.split("+")):
            self._request_seconds.labels(api, each)
        return PairObserver(self, pair)

    def watch_engines(self, read: Callable[[], Mapping[str, EngineGauges]]) -> None:
        """`read` gives the gauges of each engine, by pair; it is called at every scrape."""
        self._read_engines = read

    def watch_memory(self, read: Callable[[], tuple[int, int]]) -> None:
        """`read` gives the bundles in memory and their bytes; it is called at every scrape."""
        self._read_memory = read

    def _refresh_gauges(self) -> None:
        engines = self._read_engines()
        num_resident, num_bytes = self._read_memory()
        self._resident_bundles.set(num_resident)
        self._resident_bytes.set(num_bytes)
        for gauge, attribute in (
            (self._active_rows, "active_rows"),
            (self._row_capacity, "row_capacity"),
            (self._queued_segments, "queued_segments"),
            (self._queued_tokens, "queued_tokens"),
        ):
            gauge.clear()  # so that no gauge stays of an engine that is gone
            for pair, engine in engines.items():
                gauge.labels(pair).set(getattr(engine, attribute))

    def bundle_loaded(self, seconds: float) -> None:
        self._bundle_loads.labels("loaded").add()
        self._bundle_load_seconds.labels().observe(seconds)

    def bundle_failed(self) -> None:
        self._bundle_loads.labels("failed").add()

    def bundle_evicted(self) -> None:
        self._bundle_evictions.labels().add()

    def set_bundles(self, bundles: Iterable[tuple[str, str, str, str]]) -> None:
        """The bundles that serve now: (pair, name, version, precision) of each."""
        self._bundle_info.clear()
        for labels in bundles:
            self._bundle_info.labels(*labels).set(1)

    def set_threads(self, num_threads: int) -> None:
        self._threads.set(num_threads)

    # Reading

    def exposition(self, accept: str) -> tuple[bytes, str]:
        """The answer of `/metrics` and its content type: text, or OpenMetrics if `accept` asks for it."""
        self._refresh_gauges()
        encode, content_type = choose_encoder(accept)
        return encode(self.registry), content_type

    def totals(self) -> dict[str, float]:
        """Sums over all labels, for the live page."""
        counters = {
            "requests": self._requests,
            "rejected": self._rejected,
            "segments": self._segments,
            "source_tokens": self._source_tokens,
            "target_tokens": self._target_tokens,
            "cancelled": self._cancelled,
            "busy_seconds": self._busy_seconds,
        }
        totals = {name: counts.total() for name, counts in counters.items()}
        for result in get_args(CacheResult):
            totals[f"cache_{result}"] = self._cache_lookups.labels(result).value
        return totals

    def describe(self) -> tuple[MetricRow, ...]:
        """The README's table, row by row, without the process collector's own."""
        metrics = (value for value in vars(self).values() if isinstance(value, MetricWrapperBase | _Family))
        rows = [_describe(next(iter(metric.describe())), metric._labelnames) for metric in metrics]
        return (*rows, _describe(next(_Throttling().describe()), ()))


T = TypeVar("T", Count, Histogram)


class _Family(Collector, Generic[T]):
    """A metric with its children, by the values of its labels."""

    def __init__(self, name: str, description: str, labels: tuple[str, ...], registry: CollectorRegistry) -> None:
        self._name, self._description, self._labelnames = name, description, labels
        self._children: dict[tuple[str, ...], T] = {}
        registry.register(self)

    def labels(self, *values: str) -> T:
        child = self._children.get(values)
        return self._children.setdefault(values, self._new()) if child is None else child

    def describe(self) -> Iterator[Metric]:
        yield self._family()

    def _new(self) -> T:
        raise NotImplementedError

    def _family(self) -> Metric:
        raise NotImplementedError


class _Counts(_Family[Count]):
    def _new(self) -> Count:
        return Count()

    def total(self) -> float:
        return sum(child.value for child in list(self._children.values()))

    def _family(self) -> CounterMetricFamily:
        return CounterMetricFamily(self._name, self._description, labels=self._labelnames)

    def collect(self) -> Iterator[Metric]:
        family = self._family()
        for values, child in list(self._children.items()):
            family.add_metric(values, child.value, child.created_at)
        yield family


class _Histograms(_Family[Histogram]):
    def __init__(
        self,
        name: str,
        description: str,
        labels: tuple[str, ...],
        registry: CollectorRegistry,
        bounds: tuple[float, ...],
    ) -> None:
        self._bounds = bounds
        self._bound_names = [floatToGoString(bound) for bound in (*bounds, math.inf)]  # type: ignore[no-untyped-call]
        super().__init__(name, description, labels, registry)

    def _new(self) -> Histogram:
        return Histogram(self._bounds)

    def _family(self) -> HistogramMetricFamily:
        return HistogramMetricFamily(self._name, self._description, labels=self._labelnames)

    def collect(self) -> Iterator[Metric]:
        family = self._family()
        for values, child in list(self._children.items()):
            counts, total = child.read()
            family.add_metric(values, list(zip(self._bound_names, counts, strict=True)), total)
            labels = dict(zip(self._labelnames, values, strict=True))
            family.add_sample(f"{self._name}_created", labels, child.created_at)
        yield family


class PairObserver:
    """The engine's `Observer` for one pair: label lookups are done once, not at every step."""

    def __init__(self, metrics: Metrics, pair: str) -> None:
        self._encode_seconds = metrics._encode_seconds.labels(pair)
        self._step_seconds = metrics._step_seconds.labels(pair)
        self._batch_rows = metrics._batch_rows.labels(pair)
        self._first_token_seconds = metrics._first_token_seconds.labels(pair)
        self._queue_seconds = metrics._queue_seconds.labels(pair)
        self._source_tokens = metrics._source_tokens.labels(pair)
        self._target_tokens = metrics._target_tokens.labels(pair)
        self._segments = {reason: metrics._segments.labels(pair, reason.value) for reason in FinishReason}
        self._cancelled = metrics._cancelled.labels(pair)
        self._busy_seconds = metrics._busy_seconds.labels(pair)

    def encoded(self, seconds: float, source_tokens: int, segments: int) -> None:
        self._encode_seconds.observe(seconds)

    def stepped(self, seconds: Sequence[float], rows: int, tokens: int) -> None:
        self._step_seconds.observe_all(seconds)
        self._batch_rows.observe(rows, len(seconds))

    def first_token(self, seconds: float) -> None:
        self._first_token_seconds.observe(seconds)

    def admitted(self, queue_wait_seconds: float) -> None:
        self._queue_seconds.observe(queue_wait_seconds)

    def finished(self, reason: FinishReason, source_tokens: int, target_tokens: int) -> None:
        self._segments[reason].add()
        self._source_tokens.add(source_tokens)
        self._target_tokens.add(target_tokens)

    def cancelled(self) -> None:
        self._cancelled.add()

    def busy(self, seconds: float) -> None:
        self._busy_seconds.add(seconds)


class _Throttling(Collector):
    """Read from the cgroup when scraped; 0 where there is none, so that the series exists everywhere."""

    def __init__(self, read: Callable[[], float | None] = lambda: None) -> None:
        self._read = read

    def describe(self) -> Iterator[Metric]:
        yield CounterMetricFamily(
            "dragoman_cpu_throttled_seconds", "Time for which the CPU quota stopped this container"
        )

    def collect(self) -> Iterator[Metric]:
        family = next(self.describe())
        assert isinstance(family, CounterMetricFamily)
        family.add_metric([], self._read() or 0.0)
        yield family


def _describe(family: Metric, labels: Sequence[str]) -> MetricRow:
    name = family.name + ("_total" if family.type == "counter" else "")
    return MetricRow(name, family.type, tuple(labels), family.documentation)
