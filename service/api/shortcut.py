"""The busiest route without the framework's detour: `POST /v1/translate`, when nothing about it is unusual.

It answers with the same function as the route of `native.py`, from which the documents are made, byte for byte; only
matching, dependencies and exit stacks are left out, which cost more than checking and answering. A request that is
not plain JSON, or not valid, goes the long way and is refused there.
"""

from fastapi import Request
from pydantic import ValidationError
from starlette.types import ASGIApp, Receive, Scope, Send

from dragoman.service.api import native
from dragoman.service.api.body import replay
from dragoman.service.api.context import header_in, record_in, rooms_of
from dragoman.service.api.schemas import TranslateRequest
from dragoman.service.api.work import let_in

PATH = "/v1/translate"


class Shortcut:
    """ASGI middleware, the innermost: the body has been read, and what it raises is answered by `Catch`."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope.get("path") != PATH or scope.get("method") != "POST" or not _is_json(scope):
            await self._app(scope, receive, send)
            return
        body = (await receive())["body"]  # all of it
        try:
            asked = TranslateRequest.model_validate_json(body)
        except ValidationError:
            await self._app(scope, replay(body, receive), send)
            return
        request = Request(scope, receive)
        record_in(scope).route = PATH
        caller = let_in(request, rooms_of(request), native.bearer_key(request))
        answer = await native.post_translate(asked, request, caller)
        await answer(scope, receive, send)


def _is_json(scope: Scope) -> bool:
    return (header_in(scope, b"content-type") or "").startswith("application/json")
