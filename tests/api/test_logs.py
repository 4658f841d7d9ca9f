"""Log lines: JSON, one per request, and never any of its text."""

import io
import json
import logging
from collections.abc import Iterator

import pytest

from dragoman.service.telemetry.logs import configure_logs
from tests.api.conftest import OpenClient
from tests.api.fakes import FakeTranslator

SECRET = "segredo do cliente"


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """Everything that is logged, as the server would write it."""
    stream = io.StringIO()
    handlers, level = logging.root.handlers[:], logging.root.level
    configure_logs("debug", "json", stream)
    logging.getLogger("httpx").setLevel(logging.WARNING)  # the client's own log
    yield stream
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)


async def test_a_request_is_one_json_line(open_client: OpenClient, lines: io.StringIO) -> None:
    """What a log store needs to answer who, what, how long and how it ended."""
    async with open_client() as client:
        await client.post("/v1/translate", json={"text": "gato", "target": "en"}, headers={"X-Request-ID": "r1"})
    line = next(line for text in lines.getvalue().splitlines() if (line := json.loads(text))["message"] == "request")
    assert line["request_id"] == "r1"
    assert (line["api"], line["method"], line["route"]) == ("native", "POST", "/v1/translate")
    assert (line["status"], line["outcome"], line["pair"]) == (200, "ok", "pt-en")
    assert (line["texts"], line["characters"]) == (1, 4)
    assert line["duration_ms"] >= 0


async def test_no_text_reaches_the_log(open_client: OpenClient, translator: FakeTranslator, lines: io.StringIO) -> None:
    """Whatever happens to a request: bodies, queries, paths, unknown fields, and exceptions that quote it."""

    async def fail() -> None:
        raise ValueError(f"cannot translate {SECRET!r}")

    native = {"text": SECRET, "target": "en"}
    async with open_client() as client:
        await client.post("/v1/translate", json=native)
        await client.post("/v1/translate", json={**native, SECRET: 1})
        await client.post("/v1/translate", json={**native, "target": SECRET})
        await client.post("/v1/translate", content=json.dumps(native).encode()[:-1])
        await client.post("/translate", params={"q": SECRET, "source": "pt", "target": "en"})
        await client.post("/translate", params={"q": SECRET, "source": SECRET, "target": "en"})
        await client.post(f"/translate/{SECRET}")
        await client.post("/v2/translate", json={"text": [SECRET], "target_lang": SECRET})
        translator.before = fail
        failed = await client.post("/v1/translate", json=native)
        await client.post("/v1/translate/stream", json=native)
    assert failed.status_code == 500
    assert len(lines.getvalue().splitlines()) >= 10
    assert "segredo" not in lines.getvalue()


def test_an_exception_is_told_by_type_and_frames(lines: io.StringIO) -> None:
    """Enough to find the fault without its message."""
    try:
        raise KeyError(SECRET)
    except KeyError:
        logging.getLogger("dragoman.test").exception("it broke")
    line = json.loads(lines.getvalue())
    assert line["exception"] == "KeyError"
    assert "test_logs.py" in line["stack"][-1]
    assert "segredo" not in lines.getvalue()


def test_plain_lines_are_for_terminals() -> None:
    """A developer reads them without a tool."""
    stream = io.StringIO()
    handlers, level = logging.root.handlers[:], logging.root.level
    configure_logs("info", "text", stream)
    logging.getLogger("dragoman.test").info("bundle loaded", extra={"bundle": "pt-en 1"})
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)
    assert "info    bundle loaded bundle=pt-en 1" in stream.getvalue()


async def test_probes_do_not_fill_the_log(open_client: OpenClient, lines: io.StringIO) -> None:
    """Kubernetes asks every few seconds."""
    async with open_client() as client:
        await client.get("/healthz")
        await client.get("/metrics")
    assert '"message":"request"' not in lines.getvalue()
