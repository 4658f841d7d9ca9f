"""Dialects: each brings all that makes its API differ, and those that share a path are told apart by the request."""

import json
from pathlib import Path
from typing import Any

import pytest
from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from dragoman.service.api.api_request import ApiRequest
from dragoman.service.api.dialects.base import WARNINGS_HEADER, Dialect, DialectIndex
from dragoman.service.api.edge_limits import EdgeLimits
from dragoman.service.api.json_answer import JsonAnswer
from dragoman.service.api.keys import Key, digest, write_keys
from dragoman.service.api.metered import let_in, translate
from dragoman.service.app import DIALECTS, create_app
from dragoman.service.engine.job import FinishReason
from dragoman.service.errors import DragomanError
from dragoman.service.settings import Settings
from dragoman.service.translation.contract import (
    Segment,
    SegmentWarning,
    Timings,
    Translation,
    TranslationOptions,
    TranslationResult,
)
from tests.api.conftest import OpenClient
from tests.api.fakes import FakeTranslator, fake_parts

PATH = "/translate"  # LibreTranslate's, too


def toy_dialect(name: str) -> Dialect:
    """Claims JSON with a field of its own name, in which the text stands; its key is in a header of its own."""
    router = APIRouter(tags=[name])

    @router.post(PATH, summary=name, operation_id=name, openapi_extra={"requestBody": {"content": {}}})
    async def post_translate(request: ApiRequest) -> Response:
        await let_in(request)
        text = json.loads(request.content)[name]
        result = await translate(request, [text], "pt", "en", TranslationOptions())
        return JsonAnswer({f"{name}_result": result.translations[0].text})

    async def claims(request: ApiRequest) -> bool:
        return name in (await request.fields()).values

    async def find_key(request: ApiRequest) -> str | None:
        return request.header(f"x-{name}-key".encode())

    def render_error(error: DragomanError, request_id: str) -> Response:
        return JsonAnswer({f"{name}_error": error.detail}, error.status)

    return Dialect(name, (router,), render_error, claims=claims, find_key=find_key)


def toy_app(**settings: Any) -> FastAPI:
    dialects = (toy_dialect("first"), toy_dialect("second"), *DIALECTS)
    return create_app(Settings(watch=False, **settings), fake_parts(FakeTranslator()), dialects=dialects)


async def test_dialects_that_share_a_path_are_told_apart_by_the_request(open_client: OpenClient) -> None:
    """They are asked in order; the last one, LibreTranslate, takes what no other claims."""
    bodies = [{"first": "um"}, {"second": "um"}, {"second": "um", "first": "dois"}, {"q": "um", "source": "pt"}]
    async with open_client(toy_app()) as client:
        answers = [(await client.post(PATH, json=body)).json() for body in bodies]
        libre = await client.post(PATH, json={"q": "um", "source": "pt", "target": "en"})
        broken = await client.post(PATH, content=b"{", headers={"content-type": "application/json"})
        method = await client.get(PATH)
        metrics = (await client.get("/metrics")).text
    assert answers[:3] == [{"first_result": "mu"}, {"second_result": "mu"}, {"first_result": "siod"}]
    assert answers[3] == {"error": "Invalid request: missing target parameter"}
    assert libre.json() == {"translatedText": "mu"}
    assert (broken.status_code, list(broken.json())) == (400, ["error"])
    assert (method.status_code, list(method.json())) == (405, ["error"])
    for line in (
        'dragoman_requests_total{api="first",outcome="ok"} 2.0',
        'dragoman_requests_total{api="second",outcome="ok"} 1.0',
        'dragoman_requests_total{api="libretranslate",outcome="ok"} 1.0',
        'dragoman_request_duration_seconds_count{api="second",pair="pt-en"} 1.0',
    ):
        assert line in metrics


async def test_each_of_them_finds_its_own_key_and_refuses_in_its_own_shape(
    open_client: OpenClient, tmp_path: Path
) -> None:
    """A client of one must never meet the key or the error of another."""
    write_keys(tmp_path / "keys.json", [Key("one", digest("right"))])
    async with open_client(toy_app(keys_file=tmp_path / "keys.json")) as client:
        right = await client.post(PATH, json={"second": "um"}, headers={"x-second-key": "right"})
        other = await client.post(PATH, json={"second": "um"}, headers={"x-first-key": "right"})
        libre = await client.post(PATH, json={"q": "um", "source": "pt", "target": "en", "api_key": "right"})
    assert (right.status_code, right.json()) == (200, {"second_result": "mu"})
    assert (other.status_code, list(other.json())) == (403, ["second_error"])
    assert libre.status_code == 200


async def test_a_refusal_before_the_body_is_known_has_the_shape_of_the_last_one(open_client: OpenClient) -> None:
    """The shape that claims a request is in its body, which is too large to be read."""
    async with open_client(toy_app()) as client:
        answer = await client.post(PATH, content=b"x" * 10_000_000)
    assert (answer.status_code, list(answer.json())) == (400, ["error"])  # LibreTranslate has no 413


class CarelessTranslator(FakeTranslator):
    """Changes a number and repeats itself."""

    async def translate(self, *asked: object, **more: object) -> TranslationResult:
        lost = (SegmentWarning.NUMBER_CHANGED,)
        segments = (
            Segment("um 1", "one 2", -0.5, FinishReason.EOS, 3, lost),
            Segment("a", "a a a", -0.5, FinishReason.REPETITION, 3),
        )
        translation = Translation("one 2 a a a", "pt", None, segments, ("", " ", ""))
        return TranslationResult((translation,), "en", "fake", "1", Timings())


async def test_a_warning_reaches_the_caller_in_every_dialect(open_client: OpenClient) -> None:
    """In the body where the API has a field for it, else in a header that pages may read."""
    app = create_app(
        Settings(watch=False, cors_origins=("https://page.example",)), build=fake_parts(CarelessTranslator())
    )
    origin = {"origin": "https://page.example"}
    async with open_client(app=app) as client:
        native = await client.post("/v1/translate", json={"text": "um", "target": "en"}, headers=origin)
        deepl = await client.post("/v2/translate", json={"text": ["um"], "target_lang": "EN"}, headers=origin)
        libre = await client.post("/translate", json={"q": "um", "source": "pt", "target": "en"}, headers=origin)
    assert native.json()["translations"][0]["segments"][0]["warnings"] == ["number_changed"]
    assert WARNINGS_HEADER not in native.headers
    for answer in (deepl, libre):
        assert answer.headers[WARNINGS_HEADER] == "number_changed, repetition"
        assert WARNINGS_HEADER in answer.headers["access-control-expose-headers"]


async def test_an_answer_without_warnings_has_no_header_for_them(open_client: OpenClient) -> None:
    """So that a client may test for its presence."""
    async with open_client() as client:
        answer = await client.post("/translate", json={"q": "um", "source": "pt", "target": "en"})
    assert WARNINGS_HEADER not in answer.headers


async def test_no_endpoint_is_run_by_fastapi(open_client: OpenClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has one way in; FastAPI's, which is slower, only documents it."""
    ran: list[str] = []

    async def note(self: APIRoute, scope: Scope, receive: Receive, send: Send) -> None:
        ran.append(scope["path"])
        await JsonAnswer({})(scope, receive, send)

    monkeypatch.setattr(APIRoute, "handle", note)
    async with open_client(limits=EdgeLimits(max_live_streams=0)) as client:
        document = client.app.openapi()["paths"]
        for path, methods in document.items():
            for method in methods:
                await client.request(method, path.replace("{name}", "pt-en"), json={})
        assert ran == []
        await client.get("/docs")
        assert ran == ["/docs"]


def test_a_path_belongs_to_the_dialect_that_has_it_or_to_the_longest_prefix() -> None:
    """Paths that are not there are refused in the shape that their caller understands."""
    index = DialectIndex(DIALECTS)
    paths = ("/v1/x", "/v2/x", "/v3/x", "/detect", "/v2/health/x", "/v2/models/x/y", "/v2", "/healthz", "/health", "/x")
    assert [index.of_path(path).label for path in paths] == [
        *("native", "deepl", "deepl", "libretranslate", "operations", "operations", "operations", "operations"),
        *("libretranslate", "operations"),
    ]
    assert index.of_path("/v2/health/x") is not index.of_path("/healthz")
