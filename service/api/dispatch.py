"""The innermost middleware: reads a request's body, finds the dialect it speaks, and lets its endpoint answer.

FastAPI documents the endpoints, but does not run them: its matching, dependencies and exit stacks took a third of the
event loop's time for a short text. What no dialect has goes on to FastAPI's router: pages, the OpenAPI document, and
paths and methods that are not there.
"""

from collections.abc import Sequence

from starlette.types import ASGIApp, Receive, Scope, Send

from dragoman.service.api.api_request import ApiRequest
from dragoman.service.api.body import BodyReader
from dragoman.service.api.context import Rooms
from dragoman.service.api.dialects.base import DialectIndex, Endpoint


class Dispatch:
    """What it raises is answered by `Catch` around it."""

    def __init__(self, app: ASGIApp, dialects: DialectIndex, rooms: Rooms, body: BodyReader) -> None:
        self._app, self._dialects, self._rooms, self._body = app, dialects, rooms, body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        content = await self._body.read(scope, receive)
        endpoints, parameters = self._dialects.endpoints(scope["method"], scope["path"])
        if not endpoints:
            await self._app(scope, receive, send)
            return
        scope["path_params"] = parameters
        request = ApiRequest(scope, receive, content, self._rooms)
        endpoint = endpoints[0] if len(endpoints) == 1 else await _claimed(endpoints, request)
        request.record.dialect, request.record.route = endpoint.dialect, endpoint.path
        answer = await endpoint.answer(request)
        await answer(scope, receive, send)


async def _claimed(endpoints: Sequence[Endpoint], request: ApiRequest) -> Endpoint:
    for endpoint in endpoints[:-1]:
        if await endpoint.dialect.claims(request):
            return endpoint
    return endpoints[-1]
