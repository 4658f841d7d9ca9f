"""Traces: a span per translation, its stages inside, and none of its text."""

import pytest

from dragoman.service.app import create_app
from dragoman.service.settings import Settings
from dragoman.service.telemetry.tracing import Tracing
from tests.api.conftest import OpenClient
from tests.api.fakes import FakeTranslator, fake_parts

export = pytest.importorskip("opentelemetry.sdk.trace.export", reason="the extra `tracing` is not installed")


async def test_a_translation_is_a_span_with_its_stages(open_client: OpenClient, translator: FakeTranslator) -> None:
    """Where the time of a slow request went, and joined to the caller's own trace."""
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    memory, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(export.SimpleSpanProcessor(memory))
    tracing = Tracing(provider.get_tracer("test"))
    app = create_app(Settings(watch=False), build=fake_parts(translator), tracing=tracing)
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    async with open_client(app=app) as client:
        await client.post("/v1/translate", json={"text": "gato", "target": "en"}, headers={"traceparent": parent})
        await client.get("/healthz")
    *stages, whole = memory.get_finished_spans()
    assert [stage.name for stage in stages] == ["queue", "encode", "decode"]
    assert [stage.end_time - stage.start_time for stage in stages] == pytest.approx([1e6, 2e6, 3e6], abs=1000)
    assert whole.name == "POST /v1/translate"
    assert format(whole.context.trace_id, "032x") == "0af7651916cd43dd8448eb211c80319c"
    assert all(stage.parent.span_id == whole.context.span_id for stage in stages)
    assert whole.attributes["dragoman.pair"] == "pt-en"
    assert "gato" not in str([span.to_json() for span in (*stages, whole)])
