"""Which pages may call the API from a browser: Starlette's rules, and no work for callers that are no browsers."""

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.types import Message, Receive, Scope, Send

from dragoman.service.api.context import header_in

VARIES = (b"vary", b"Origin")


class Cors(CORSMiddleware):
    """Without an `Origin` all that is left to say is that the answer might differ with one; a test compares the two."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or header_in(scope, b"origin") is not None:
            await super().__call__(scope, receive, send)
            return

        async def send_varying(message: Message) -> None:
            if message["type"] == "http.response.start":
                if any(name == b"vary" for name, _ in message.get("headers", ())):
                    await self.send(message, send, Headers(scope=scope))
                    return
                message["headers"] = [*message.get("headers", ()), VARIES]
            await send(message)

        await self.app(scope, receive, send_varying)
