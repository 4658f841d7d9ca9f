"""The native API over HTTP."""

import json
from collections.abc import Iterator

import httpx
import pytest

from dragoman.service.api.dialects import native_schemas as schemas
from dragoman.service.api.edge_limits import EdgeLimits
from dragoman.service.errors import DeadlineExceeded, QueueFull, StrictRefusal
from tests.api.conftest import OpenClient, OpenServer
from tests.api.fakes import FakeTranslator


def events_of(text: str) -> Iterator[tuple[str, dict]]:
    """The events of a server-sent stream; comments are left out."""
    for block in text.split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if lines:
            yield lines["event"], json.loads(lines["data"])


async def test_a_text_is_translated(open_client: OpenClient) -> None:
    """The first thing anybody tries, and the whole shape of its answer."""
    async with open_client() as client:
        response = await client.post("/v1/translate", json={"text": "gato", "source": "pt", "target": "en"})
    assert response.status_code == 200
    assert response.json() == {
        "translations": [
            {
                "text": "otag",
                "source": "pt",
                "detected": None,
                "pivot": None,
                "segments": [
                    {
                        "source": "gato",
                        "text": "otag",
                        "score": -0.5,
                        "finish_reason": "eos",
                        "num_tokens": 5,
                        "warnings": [],
                        "alternatives": [],
                        "log_probs": None,
                    }
                ],
            }
        ],
        "target": "en",
        "model": {"name": "fake", "version": "1"},
        "timings": {"queue_ms": 1.0, "encode_ms": 2.0, "decode_ms": 3.0},
    }


async def test_many_texts_are_answered_in_their_order(open_client: OpenClient) -> None:
    """A long answer is written on another thread; it is the same answer."""
    texts = [f"gato {number}" for number in range(60)]
    async with open_client() as client:
        response = await client.post("/v1/translate", json={"text": texts, "source": "pt", "target": "en"})
    assert [each["text"] for each in response.json()["translations"]] == [text[::-1] for text in texts]


async def test_every_option_reaches_the_translator(open_client: OpenClient, translator: FakeTranslator) -> None:
    """An option that is taken and not used would be a silent loss."""
    asked = {
        "text": ["um", "dois"],
        "target": "en",
        "beam_size": 4,
        "length_penalty": 0.8,
        "n_best": 2,
        "max_new_tokens": 9,
        "target_prefix": "One",
        "glossary": {"um": "one"},
        "log_probs": True,
        "repetition_guard": False,
        "strict": True,
        "timeout_ms": 1500,
    }
    async with open_client() as client:
        response = await client.post("/v1/translate", json=asked)
    texts, source, target, options, _ = translator.orders[0]
    assert (texts, source, target) == (["um", "dois"], "auto", "en")
    taken = {name: getattr(options, name) for name in asked if hasattr(options, name)}
    assert taken == {name: value for name, value in asked.items() if name in taken}
    assert options.timeout_seconds == 1.5
    assert response.json()["translations"][1]["segments"][0]["alternatives"][0] == {"text": "siod'", "score": -1.5}


async def test_answers_are_what_the_documents_say(open_client: OpenClient) -> None:
    """Answers are written by hand for speed; the models that document them must agree."""
    asked = {"text": "um\ndois", "target": "en", "beam_size": 2, "n_best": 2, "log_probs": True}
    async with open_client() as client:
        translated = (await client.post("/v1/translate", json=asked)).json()
        models = (await client.get("/v1/models")).json()
        languages = (await client.get("/v1/languages")).json()
    for model, content in (
        (schemas.TranslateResponse, translated),
        (schemas.ModelsResponse, models),
        (schemas.LanguagesResponse, languages),
    ):
        assert model.model_validate(content, strict=True).model_dump() == content


async def test_models_show_their_evidence(open_client: OpenClient) -> None:
    """Whoever runs a server should see what was measured of what it serves."""
    async with open_client() as client:
        models = (await client.get("/v1/models")).json()["models"]
    assert [(model["name"], model["evidence"]) for model in models] == [
        ("en-pt", {"parity": 1.0}),
        ("pt-en", {"parity": 1.0}),
    ]


async def test_languages_say_what_goes_where(open_client: OpenClient) -> None:
    """A menu of languages is built from this."""
    async with open_client() as client:
        content = (await client.get("/v1/languages")).json()
    assert content["languages"][0] == {"code": "en", "name": "English", "targets": ["pt"]}
    assert content["pairs"][0] == {"source": "en", "target": "pt", "pivot": None}


async def test_a_stream_gives_tokens_segments_and_the_whole(open_client: OpenClient) -> None:
    """The joined tokens are the text of the answer that is not streamed."""
    asked = {"text": "um\ndois", "source": "pt", "target": "en"}
    async with open_client() as client:
        response = await client.post("/v1/translate/stream", json=asked)
        whole = (await client.post("/v1/translate", json=asked)).json()
    assert response.headers["content-type"].startswith("text/event-stream")
    events = list(events_of(response.text))
    assert "".join(data["text"] for name, data in events if name == "token") == whole["translations"][0]["text"]
    assert [data["index"] for name, data in events if name == "segment"] == [0, 1]
    assert events[-1] == ("done", whole)


async def test_a_stream_that_is_refused_is_an_ordinary_refusal(
    open_client: OpenClient, translator: FakeTranslator
) -> None:
    """A client must see 429 as a status, not inside a 200."""

    async def refuse() -> None:
        raise QueueFull("The queue is full.", 2.0)

    translator.before = refuse
    async with open_client() as client:
        response = await client.post("/v1/translate/stream", json={"text": "gato", "target": "en"})
    assert (response.status_code, response.headers["retry-after"]) == (429, "2")


async def test_a_stream_that_fails_midway_says_so(open_client: OpenClient, translator: FakeTranslator) -> None:
    """A stream that just ended would look complete."""
    turns = 0

    async def fail_later() -> None:
        nonlocal turns
        turns += 1
        if turns > 1:
            raise DeadlineExceeded("Too late.")

    translator.before = fail_later
    async with open_client() as client:
        response = await client.post("/v1/translate/stream", json={"text": "gato", "target": "en"})
    name, problem = list(events_of(response.text))[-1]
    assert (name, problem["status"], problem["reason"]) == ("error", 504, "deadline")


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b"", 400, "JSON object"),
        (b"{", 400, "not JSON"),
        (b"\xff\xfe{}", 400, "not JSON"),
        (b'{"text": "caf\xe9"}', 400, "not UTF-8"),
        (b"[" * 100_000, 400, "could not be read"),
        (b"[]", 400, "JSON object"),
        (b'"text"', 400, "JSON object"),
        (b"{}", 422, "field required"),
        (b'{"text": 1, "target": "en"}', 422, "text must be a string or a list of strings"),
        (b'{"text": [1], "target": "en"}', 422, "text must be a string or a list of strings"),
        (b'{"text": [], "target": "en"}', 422, "at least 1 item"),
        (b'{"text": "a", "target": "en", "colour": "red"}', 422, "colour is not a field"),
        (b'{"text": "a", "target": "en", "beam_size": "4"}', 422, "beam_size: input should be a valid integer"),
        (b'{"text": "a", "target": "en", "beam_size": 0}', 422, "beam_size"),
        (b'{"text": "a", "target": "en", "beam_size": 99}', 422, "must be from 1 to 8"),
        (b'{"text": "a", "target": "en", "n_best": 2}', 422, "n_best is 2"),
        (b'{"text": "a", "target": "en", "length_penalty": NaN}', 422, "length_penalty"),
        (b'{"text": "a", "target": "en", "strict": 1}', 422, "strict"),
        (b'{"text": "a", "target": "en", "glossary": {"a": 1}}', 422, "glossary"),
        (b'{"text": "a", "target": "en", "timeout_ms": 0}', 422, "timeout_ms"),
        (b'{"text": "a", "target": "en", "timeout_ms": 1' + b"0" * 400 + b"}", 422, "timeout_ms"),
        (b'{"text": "a", "target": "en", "beam_size": 1' + b"0" * 5000 + b"}", 400, "could not be read"),
        (b'{"text": "a", "target": "x y"}', 422, "target"),
        (b'{"text": "a", "source": "", "target": "en"}', 422, "source"),
        (b'{"text": "a", "source": "zz", "target": "en"}', 404, "No bundle"),
        (b'{"text": "\\ud800", "target": "en"}', 422, "surrogate"),
        (b'{"text": ["a", "\\udc00b"], "target": "en"}', 422, "surrogate"),
        (b'{"text": "a", "target": "en", "glossary": {"\\ud800": "b"}}', 422, "surrogate"),
        (b'{"text": "a", "target": "\\ud800"}', 422, "target"),
        (b'{"text": "a", "target": "en", "\\ud800": 1}', 422, "unicode string"),
    ],
)
async def test_bad_input_gets_a_clear_problem(open_client: OpenClient, body: bytes, status: int, words: str) -> None:
    """RFC 9457, one sentence that says what to mend, and never a 500."""
    async with open_client() as client:
        response = await client.post("/v1/translate", content=body, headers={"Content-Type": "application/json"})
    assert response.headers["content-type"] == "application/problem+json"
    problem = schemas.Problem.model_validate(response.json())
    assert (response.status_code, problem.status) == (status, status)
    assert words in problem.detail


@pytest.mark.parametrize("path", ["/v1/translate/stream", "/v1/explain"])
async def test_a_list_where_one_text_is_taken_is_told_so(open_client: OpenClient, path: str) -> None:
    """Advice that cannot work, to send a list of strings, would be worse than none."""
    async with open_client() as client:
        response = await client.post(path, json={"text": ["gato"], "target": "en"})
    assert (response.status_code, response.json()["detail"]) == (422, "text must be a string.")


async def test_a_body_that_is_not_declared_as_json_is_told_so(open_client: OpenClient) -> None:
    """What curl sends without a header is the most common mistake of all."""
    async with open_client() as client:
        response = await client.post("/v1/translate", content=b'{"text": "a", "target": "en"}')
    assert response.status_code == 400
    assert "Content-Type: application/json" in response.json()["detail"]


@pytest.mark.parametrize(
    "text", ["a\x00b", "\u202eright to left\u202c", "\ufeff", "x" * 50_000, "", " \n\t ", "\U0001f469‍🚀"]
)
async def test_odd_text_is_still_text(open_client: OpenClient, translator: FakeTranslator, text: str) -> None:
    """NUL, direction marks and endless words arrive at the translator as they were sent."""
    async with open_client() as client:
        response = await client.post("/v1/translate", json={"text": text, "source": "pt", "target": "en"})
    assert response.status_code == 200
    assert translator.orders[0][0] == [text]


async def test_too_many_texts_are_too_large(open_client: OpenClient) -> None:
    """Ten thousand texts in one request are a mistake, or an attack."""
    async with open_client() as client:
        response = await client.post("/v1/translate", json={"text": ["a"] * 10_000, "target": "en"})
    assert response.status_code == 413


async def test_ten_megabytes_are_too_large(open_client: OpenClient) -> None:
    """Refused by size, before anything is parsed."""
    async with open_client() as client:
        response = await client.post("/v1/translate", content=b"x" * 10_000_000)
    assert (response.status_code, response.json()["reason"]) == (413, "too_large")
    assert response.headers["connection"] == "close"


async def test_strict_refusals_pass_through(open_client: OpenClient, translator: FakeTranslator) -> None:
    """`strict` is the caller's way to be told instead of getting less."""

    async def refuse() -> None:
        raise StrictRefusal("Segment 0 ended by length; raise max_new_tokens, or drop strict.")

    translator.before = refuse
    async with open_client() as client:
        response = await client.post("/v1/translate", json={"text": "gato", "target": "en", "strict": True})
    assert (response.status_code, response.json()["reason"]) == (422, "strict")


async def test_a_fault_of_ours_is_a_problem_without_details(
    open_client: OpenClient, translator: FakeTranslator, caplog: pytest.LogCaptureFixture
) -> None:
    """The caller gets an id that leads to the log; neither of them gets the message, which may quote the text."""

    async def fail() -> None:
        raise KeyError("o texto do cliente")

    translator.before = fail
    async with open_client() as client:
        response = await client.post("/v1/translate", json={"text": "gato", "target": "en"})
    assert response.status_code == 500
    assert "texto" not in response.text
    request_id = response.json()["request_id"]
    assert any(getattr(record, "request_id", "") == request_id for record in caplog.records)


async def test_unknown_paths_and_methods_answer_in_the_shape_of_their_api(open_client: OpenClient) -> None:
    """A DeepL client that asks for what we lack must understand the refusal."""
    async with open_client() as client:
        native = await client.get("/v1/nothing")
        deepl = await client.get("/v2/document")
        method = await client.get("/v1/translate")
        elsewhere = await client.get("/nothing")
    assert (native.status_code, native.json()["reason"]) == (404, "not_found")
    assert (deepl.status_code, sorted(deepl.json())) == (404, ["detail", "message"])
    assert (method.status_code, method.headers["allow"]) == (405, "POST")
    assert elsewhere.status_code == 404


async def test_every_answer_has_an_id_and_safe_headers(open_client: OpenClient) -> None:
    """The id joins a complaint to a log line; a caller's own is kept, if it is harmless."""
    async with open_client() as client:
        own = await client.get("/healthz", headers={"X-Request-ID": "abc-1"})
        bad = await client.get("/healthz", headers={"X-Request-ID": "a b\tc"})
    assert own.headers["x-request-id"] == "abc-1"
    assert len(bad.headers["x-request-id"]) == 32
    assert own.headers["x-content-type-options"] == "nosniff"
    assert own.headers["content-security-policy"].startswith("default-src 'none'")


def test_the_live_stream_shows_state_and_ends_on_drain(open_server: OpenServer, translator: FakeTranslator) -> None:
    """The page watches it; a watcher must not keep a server from stopping."""
    with (
        open_server() as url,
        httpx.stream("GET", f"{url}/v1/live", params={"interval_ms": 50}) as response,
    ):
        lines = (line for line in response.iter_lines() if line.startswith("data: "))
        state = json.loads(next(lines).removeprefix("data: "))
        assert state["draining"] is False
        assert state["totals"]["requests"] == 0
        assert set(state["per_second"]) == {"requests", "segments", "source_tokens", "target_tokens"}


async def test_watchers_are_limited(open_client: OpenClient) -> None:
    """A page left open by everybody must not cost what translations need."""
    async with open_client(limits=EdgeLimits(max_live_streams=0)) as client:
        response = await client.get("/v1/live")
    assert response.status_code == 429
