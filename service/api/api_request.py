"""`ApiRequest`: a request whose body has been read, with all that an endpoint needs to answer it."""

from collections.abc import AsyncGenerator

from starlette.requests import Request
from starlette.types import Receive, Scope

from dragoman.service.api.context import RequestRecord, Rooms, header_in
from dragoman.service.api.fields import MAX_FIELDS, Fields, parse_fields
from dragoman.service.api.keys import Key


class ApiRequest(Request):
    key: Key | None  # the caller's, once it has been let in

    def __init__(self, scope: Scope, receive: Receive, content: bytes, rooms: Rooms) -> None:
        super().__init__(scope, receive)
        self.content = content  # the whole body
        self.rooms = rooms
        self.record: RequestRecord = scope["state"]["record"]
        self._read_fields: Fields | None = None

    @property
    def tenant(self) -> str:
        """What scopes the cache; all callers without a key share one scope."""
        return self.key.name if self.key else ""

    def header(self, name: bytes) -> str | None:
        return header_in(self.scope, name)

    async def stream(self) -> AsyncGenerator[bytes, None]:
        """What Starlette's `body` and `form` read."""
        yield self.content
        yield b""

    async def fields(self) -> Fields:
        """The fields of the query and of the body, which may be JSON or a form."""
        if self._read_fields is None:
            content_type = (self.header(b"content-type") or "").partition(";")[0].strip().lower()
            form = None
            if content_type == "multipart/form-data":
                form = await self.form(max_files=0, max_fields=MAX_FIELDS)
            self._read_fields = parse_fields(content_type, self.scope["query_string"], self.content, form)
        return self._read_fields


def bearer_key(request: ApiRequest) -> str | None:
    scheme, _, key = (request.header(b"authorization") or "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else None
