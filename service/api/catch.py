"""Where errors become answers: what an endpoint, a middleware or a router raises, in the shape of the dialect called.

So neither Starlette nor uvicorn prints an error's message, which may quote the request. It stands inside `Tracking`,
which gives the answer its id, and inside `Cors`, so that pages may read why they were refused.
"""

import logging

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from dragoman.service.api.context import RequestRecord
from dragoman.service.api.refusals import refuse
from dragoman.service.errors import ClientLeft, DragomanError

log = logging.getLogger("dragoman.http")


class Catch:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app

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
            if not isinstance(error, DragomanError | HTTPException):
                log.error("a request failed", exc_info=error, extra={"request_id": record.request_id})
            answer = refuse(error, record)
            if record.status is None:
                await answer(scope, receive, send)
