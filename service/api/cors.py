"""Which pages may call the API from a browser: Starlette's rules, and no work for callers that are no browsers."""

from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dragoman.service.api.context import header_in

VARIES = (b"vary", b"Origin")


class Cors:
    """Starlette's layer for a request with an `Origin`. Without one, all that is left to say is that the answer might
    differ with one; a test compares the two."""

    def __init__(self, app: ASGIApp, /, **rules: Any) -> None:
        self._app, self._for_pages = app, CORSMiddleware(app, **rules)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or header_in(scope, b"origin") is not None:
            await self._for_pages(scope, receive, send)
            return

        async def send_varying(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = message["headers"] = list(message.get("headers", ()))
                if any(name == b"vary" for name, _ in own):
                    headers = MutableHeaders(raw=own)
                    headers["Vary"] = ", ".join([*headers.getlist("Vary"), "Origin"])
                else:
                    own.append(VARIES)
            await send(message)

        await self._app(scope, receive, send_varying)
