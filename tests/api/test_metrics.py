"""Metrics: all there from the start, with few labels and real values."""

import re

import pytest
from prometheus_client.parser import text_string_to_metric_families

from dragoman.service.engine.job import FinishReason
from dragoman.service.errors import QueueFull
from dragoman.service.telemetry.metrics import SECONDS, Metrics
from tests.api.conftest import OpenClient
from tests.api.fakes import FakeTranslator

OF_THE_DESIGN = {
    "requests_total", "request_duration_seconds", "queue_wait_seconds", "first_token_seconds", "encode_seconds",
    "decode_step_seconds", "batch_rows", "active_rows", "queued_segments", "queued_tokens", "source_tokens_total",
    "target_tokens_total", "segments_total", "rejected_total", "cancelled_total", "cache_lookups_total",
    "bundle_info", "bundle_loads_total", "row_capacity", "engine_busy_seconds_total", "runtime_threads",
    "cpu_throttled_seconds_total", "bundle_load_seconds", "bundle_evictions_total", "resident_bundles",
    "resident_bundle_bytes",
}  # fmt: skip


def test_every_metric_of_the_design_is_declared() -> None:
    """Dashboards and alerts are written against these names."""
    names = {row.name for row in Metrics().describe()}
    assert names == {f"dragoman_{name}" for name in OF_THE_DESIGN}


def test_labels_have_few_values() -> None:
    """A label that grows with callers or texts takes the monitoring down."""
    labels = {label for row in Metrics().describe() for label in row.labels}
    assert labels <= {"api", "pair", "outcome", "reason", "finish_reason", "result", "name", "version", "precision"}


def test_histograms_start_at_half_a_millisecond() -> None:
    """A step of a small model takes about one."""
    assert SECONDS[0] == 0.0005
    assert list(SECONDS) == sorted(SECONDS)


def test_children_exist_before_anything_happens() -> None:
    """The rate of a counter that appears with its first event misses that event."""
    metrics = Metrics(apis=("native", "deepl"))
    metrics.observer("pt-en")
    text = metrics.exposition("")[0].decode()
    for line in (
        'dragoman_requests_total{api="deepl",outcome="refused"} 0.0',
        'dragoman_rejected_total{reason="queue_full"} 0.0',
        'dragoman_cache_lookups_total{result="shared"} 0.0',
        'dragoman_bundle_loads_total{outcome="failed"} 0.0',
        'dragoman_segments_total{finish_reason="repetition",pair="pt-en"} 0.0',
        'dragoman_queue_wait_seconds_bucket{le="0.0005",pair="pt-en"} 0.0',
        'dragoman_cancelled_total{pair="pt-en"} 0.0',
    ):
        assert line in text


def test_an_engine_reports_through_its_observer() -> None:
    """One call each, and the values add up."""
    metrics = Metrics()
    observer = metrics.observer("pt-en")
    observer.admitted(0.001)
    observer.encoded(0.002, 10, 2)
    observer.stepped([0.003], 2, 2)
    observer.first_token(0.004)
    observer.finished(FinishReason.EOS, 10, 12)
    observer.cancelled()
    observer.busy(0.5)
    values = {
        sample.name: sample.value
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.labels.get("pair") == "pt-en" and sample.labels.get("finish_reason", "eos") == "eos"
    }
    assert values["dragoman_source_tokens_total"] == 10
    assert values["dragoman_target_tokens_total"] == 12
    assert values["dragoman_segments_total"] == 1
    assert values["dragoman_batch_rows_sum"] == 2
    assert values["dragoman_first_token_seconds_sum"] == 0.004
    assert values["dragoman_engine_busy_seconds_total"] == 0.5
    assert metrics.totals()["target_tokens"] == 12


def test_bundles_that_no_longer_serve_leave_the_info(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two versions at 1 would say that both serve."""
    metrics = Metrics()
    metrics.set_bundles([("pt-en", "pt-en", "1", "int8")])
    metrics.set_bundles([("pt-en", "pt-en", "2", "int8")])
    lines = [
        line for line in metrics.exposition("")[0].decode().splitlines() if line.startswith("dragoman_bundle_info")
    ]
    assert lines == ['dragoman_bundle_info{name="pt-en",pair="pt-en",precision="int8",version="2"} 1.0']


async def test_requests_are_counted_by_api_and_outcome(open_client: OpenClient, translator: FakeTranslator) -> None:
    """`are users fine` is answered from this counter."""

    async def refuse() -> None:
        raise QueueFull("Full.", 1)

    async with open_client() as client:
        await client.post("/v1/translate", json={"text": "a", "target": "en"})
        await client.post("/v1/translate", json={})
        await client.post("/v2/translate", json={"text": ["a"], "target_lang": "EN"})
        translator.before = refuse
        await client.post("/translate", json={"q": "a", "source": "pt", "target": "en"})
        text = (await client.get("/metrics")).text
    for line in (
        'dragoman_requests_total{api="native",outcome="ok"} 1.0',
        'dragoman_requests_total{api="native",outcome="invalid"} 1.0',
        'dragoman_requests_total{api="deepl",outcome="ok"} 1.0',
        'dragoman_requests_total{api="libretranslate",outcome="refused"} 1.0',
        'dragoman_rejected_total{reason="queue_full"} 1.0',
        'dragoman_rejected_total{reason="invalid_request"} 1.0',
        'dragoman_request_duration_seconds_count{api="native",pair="pt-en"} 1.0',
        'dragoman_bundle_info{name="pt-en",pair="pt-en",precision="int8",version="1"} 1.0',
    ):
        assert line in text
    assert re.search(r"^process_resident_memory_bytes \d", text, re.MULTILINE)
    assert list(text_string_to_metric_families(text))


async def test_openmetrics_is_for_who_asks(open_client: OpenClient) -> None:
    """Prometheus asks for it, curl does not."""
    async with open_client() as client:
        plain = await client.get("/metrics")
        open_metrics = await client.get("/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
    assert plain.headers["content-type"].startswith("text/plain")
    assert open_metrics.headers["content-type"].startswith("application/openmetrics-text")
    assert open_metrics.text.endswith("# EOF\n")
