"""JSON as a response: the only place where an API's answer becomes bytes."""

from typing import Any

import orjson
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

JSON = "application/json"


class JsonAnswer(Response):
    """Writes its two headers itself: Starlette would take longer to work them out than orjson takes for the body."""

    media_type = JSON

    def __init__(self, content: Any, status_code: int = 200, media_type: str = JSON) -> None:
        self.status_code, self.background = status_code, None
        self.body = orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)
        self.raw_headers = [(b"content-length", b"%d" % len(self.body)), (b"content-type", media_type.encode())]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": self.body})
