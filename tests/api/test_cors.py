"""Our CORS layer answers as Starlette's does; only what leads there is shorter."""

import pytest
from starlette.middleware.cors import CORSMiddleware
from starlette.types import Message, Receive, Scope, Send

from dragoman.service.api.cors import Cors

RULES = {"allow_methods": ("GET", "POST"), "allow_headers": ("Authorization",), "expose_headers": ("Retry-After",)}
Headers = list[tuple[bytes, bytes]]


async def answer(
    layer: type[CORSMiddleware], origins: tuple[str, ...], method: str, asked: Headers, own: Headers
) -> list[Message]:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": list(own)})
        await send({"type": "http.response.body", "body": b"said"})

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    sent: list[Message] = []
    scope: Scope = {"type": "http", "method": method, "path": "/", "headers": asked}
    await layer(app, allow_origins=origins, **RULES)(scope, receive, send)
    return sent


@pytest.mark.parametrize("origins", [("*",), ("https://a.example",)])
@pytest.mark.parametrize(
    "asked",
    [[], [(b"origin", b"https://a.example")], [(b"origin", b"null"), (b"access-control-request-method", b"POST")]],
)
@pytest.mark.parametrize(
    "own", [[], [(b"content-type", b"text/plain")], [(b"vary", b"Accept"), (b"etag", b"1"), (b"vary", b"Cookie")]]
)
@pytest.mark.parametrize("method", ["POST", "OPTIONS"])
async def test_every_answer_is_starlettes(origins: tuple[str, ...], asked: Headers, own: Headers, method: str) -> None:
    """A cache that heard no `Vary: Origin` would give one site's answer to another."""
    ours = await answer(Cors, origins, method, asked, own)
    assert ours == await answer(CORSMiddleware, origins, method, asked, own)
