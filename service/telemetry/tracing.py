"""OpenTelemetry (extra `tracing`): a span per translation, with spans for queue, encode and decode inside.

Spans are written when a request is over, from times that were measured anyway, so tracing costs nothing while a
request runs. OpenTelemetry's own variables, such as `OTEL_EXPORTER_OTLP_ENDPOINT`, say where they are sent. No span
holds any of a request's text.
"""

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

Stages = tuple[tuple[str, float], ...]  # name and seconds, in order


class Tracing:
    def __init__(self, tracer: "Tracer", now: Callable[[], float] = time.time) -> None:
        self._tracer = tracer
        self._now = now

    def export(
        self,
        name: str,
        seconds: float,
        stages: Stages,
        attributes: Mapping[str, str | int],
        trace_parent: str | None = None,
    ) -> None:
        """Write the spans of a request that just ended and took `seconds`, its stages laid end to end inside it."""
        from opentelemetry import trace
        from opentelemetry.propagate import extract

        parent = extract({"traceparent": trace_parent}) if trace_parent else None
        ended_at = self._now()
        stage_at = started_at = ended_at - seconds
        span = self._tracer.start_span(
            name,
            context=parent,
            kind=trace.SpanKind.SERVER,
            start_time=_nanoseconds(started_at),
            attributes=attributes,
        )
        inside = trace.set_span_in_context(span)
        for stage, duration in stages:
            child = self._tracer.start_span(stage, context=inside, start_time=_nanoseconds(stage_at))
            stage_at += duration
            child.end(_nanoseconds(stage_at))
        span.end(_nanoseconds(ended_at))


def open_tracing() -> Tracing:
    """Export by OTLP over HTTP; raises an ImportError that says what to install."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        raise ImportError("DRAGOMAN_TRACING needs more packages: run pip install 'dragoman[tracing]'.") from None
    provider = TracerProvider(resource=Resource.create({"service.name": "dragoman"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return Tracing(provider.get_tracer("dragoman"))


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)
