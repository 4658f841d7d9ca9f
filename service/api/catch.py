"""The last catch: what a route or a middleware lets through becomes an answer in the shape of the API that was called.

So neither Starlette nor uvicorn prints an error's message, which may quote the request. It stands inside `Tracking`,
which gives the answer its id, and inside `Cors`, so that pages may read why they were refused.
"""

import logging

from starlette.types import ASGIApp, Receive, Scope, Send

from dragoman.service.api.context import RequestRecord
from dragoman.service.api.refusals import Dialect, answer, as_dragoman_error, choose_dialect
from dragoman.service.errors import ClientLeft, DragomanError

log = logging.getLogger("dragoman.http")


class Catch:
    def __init__(self, app: ASGIApp, dialects: tuple[Dialect, ...]) -> None:
        self._app, self._dialects = app, dialects

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        record: RequestRecord = scope["state"]["record"]
        try:
            await self._app(scope, receive, send)
        except ClientLeft:
            record.client_left = True
        except Exception as error:
            if not isinstance(error, DragomanError):
                log.error("a request failed", exc_info=error, extra={"request_id": record.request_id})
            known = as_dragoman_error(error)
            record.reason = known.reason
            if record.status is None:
                dialect = choose_dialect(self._dialects, scope["path"])
                await answer(dialect, known, record.request_id)(scope, receive, send)
