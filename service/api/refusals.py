"""From an error to an answer, in the shape of the dialect that was called.

What Starlette raises is turned into our own tree first, without quoting any of the request.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import Response

from dragoman.service.api.context import RequestRecord
from dragoman.service.errors import (
    BadRequest,
    DeadlineExceeded,
    DragomanError,
    Forbidden,
    InternalError,
    MethodNotAllowed,
    NotFound,
    NotReady,
    QueueFull,
    SlowBody,
)

# What any request that translates may meet, in every API; each adds what it tells apart.
COMMON_REFUSALS: tuple[type[DragomanError], ...] = (
    BadRequest, Forbidden, SlowBody, QueueFull, InternalError, NotReady, DeadlineExceeded,
)  # fmt: skip
CLOSING = frozenset({408, 413, 431})  # the rest of the body is not read, so the connection cannot be used again


def document(
    errors: Iterable[type[DragomanError]],
    media_type: str,
    schema: Mapping[str, Any],
    status_of: Callable[[type[DragomanError]], int] = lambda error: error.status,
) -> dict[int | str, dict[str, Any]]:
    """These refusals as OpenAPI lists them, by status."""
    content = {media_type: {"schema": schema}}
    return {
        status_of(error): {"description": error.title, "content": content} for error in sorted(errors, key=status_of)
    }


def refuse(error: Exception, record: RequestRecord) -> Response:
    """The answer to a request that failed; its reason is noted for the metrics and the log."""
    known = as_dragoman_error(error)
    record.reason = known.reason
    answer = record.dialect.render_error(known, record.request_id)
    if known.retry_after_seconds is not None:
        answer.headers["Retry-After"] = str(max(1, math.ceil(known.retry_after_seconds)))
    if known.status in CLOSING:
        answer.headers["Connection"] = "close"
    if isinstance(error, HTTPException):
        answer.headers.update(error.headers or {})  # such as Allow
    return answer


def as_dragoman_error(error: Exception) -> DragomanError:
    if isinstance(error, DragomanError):
        return error
    status = error.status_code if isinstance(error, HTTPException) else 500
    if status == 404:
        return NotFound("There is nothing at this path; /docs lists what there is.")
    if status == 405:
        return MethodNotAllowed("This path does not take this method; /docs says which it takes.")
    if status < 500:
        return BadRequest("The request could not be read; check its body and its headers.")
    return InternalError("Something went wrong on the server; look up the request id in its log.")
