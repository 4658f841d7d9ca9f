"""The shortcut answers as the framework's own route does, and leaves whatever is unusual to it."""

import json

import pytest
from fastapi.routing import APIRoute
from starlette.types import Receive, Scope, Send

from dragoman.service.api import shortcut
from tests.api.conftest import OpenClient

BODIES = [
    {"text": "O gato dorme.", "source": "pt", "target": "en"},
    {"text": ["Bom dia!", "Até já."], "target": "en", "beam_size": 4, "n_best": 2, "log_probs": True},
    {"text": "Olá", "target": "en", "glossary": {"Olá": "Hi"}, "timeout_ms": 5000, "length_penalty": 1},
    {"text": "Olá", "target": "en", "beam_size": "4"},
    {"text": "Olá", "target": "en", "colour": "blue"},
    {"text": [], "target": "en"},
    {"target": "en"},
    ["Olá"],
]
RAW = [b"{", b'{"text": "\\ud800", "target": "en"}', b'{"text": "a", "target": "en", "length_penalty": NaN}', b"\xff"]


async def _long_way(self: shortcut.Shortcut, scope: Scope, receive: Receive, send: Send) -> None:
    await self._app(scope, receive, send)


@pytest.mark.parametrize("origin", [{}, {"origin": "https://example.org"}])
@pytest.mark.parametrize("body", [*(json.dumps(body).encode() for body in BODIES), *RAW])
async def test_both_ways_give_the_same_answer(
    open_client: OpenClient, monkeypatch: pytest.MonkeyPatch, body: bytes, origin: dict[str, str]
) -> None:
    """Byte for byte, headers too: nobody can tell which way a request went."""
    headers = {"content-type": "application/json", "x-request-id": "same", **origin}
    async with open_client() as client:
        short = await client.post("/v1/translate", content=body, headers=headers)
        monkeypatch.setattr(shortcut.Shortcut, "__call__", _long_way)
        long = await client.post("/v1/translate", content=body, headers=headers)
    assert (short.status_code, short.content) == (long.status_code, long.content)
    assert sorted(short.headers.items()) == sorted(long.headers.items())
    assert ("access-control-allow-origin" in short.headers) == bool(origin)


async def test_the_shortcut_is_taken(open_client: OpenClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """An ordinary request must not go the long way unnoticed; log and metrics know its route all the same."""
    long_way: list[str] = []

    async def note(self: APIRoute, scope: Scope, receive: Receive, send: Send) -> None:
        long_way.append(scope["path"])

    async with open_client() as client:
        with monkeypatch.context() as patched:
            patched.setattr(APIRoute, "handle", note)
            answer = await client.post("/v1/translate", json=BODIES[0])
        metrics = (await client.get("/metrics")).text
    assert answer.status_code == 200
    assert long_way == []
    assert 'dragoman_requests_total{api="native",outcome="ok"} 1.0' in metrics
