"""From an error to an answer, in the shape of the API that was called.

Each API module says which paths are its own and how it tells an error; this file knows neither. It turns what FastAPI
and Starlette raise into our own tree first, without quoting any of the request.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from dragoman.service.api.context import record_in
from dragoman.service.errors import (
    BadRequest,
    DeadlineExceeded,
    DragomanError,
    Forbidden,
    InternalError,
    InvalidRequest,
    MethodNotAllowed,
    NotFound,
    NotReady,
    QueueFull,
    SlowBody,
)
from dragoman.service.telemetry.metrics import Api, Outcome

FIELD = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,39}")  # a field's name is repeated to the caller only if it looks like one
NO_OBJECT = frozenset({"missing", "model_type", "model_attributes_type", "dict_type"})
# What any request that translates may meet, in every API; each adds what it tells apart.
COMMON_REFUSALS: tuple[type[DragomanError], ...] = (
    BadRequest, Forbidden, SlowBody, QueueFull, InternalError, NotReady, DeadlineExceeded,
)  # fmt: skip
CLOSING = frozenset({408, 413, 431})  # the rest of the body is not read, so the connection cannot be used again


@dataclass(frozen=True)
class Dialect:
    """How one API speaks: which paths belong to it, and what its errors look like."""

    api: Api
    claims: Callable[[str], bool]
    render: Callable[[DragomanError, str], Response]  # of the error and the request id


def choose_dialect(dialects: tuple[Dialect, ...], path: str) -> Dialect:
    for dialect in dialects:
        if dialect.claims(path):
            return dialect
    raise AssertionError("the last dialect claims every path")


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


def answer(dialect: Dialect, error: DragomanError, request_id: str) -> Response:
    response = dialect.render(error, request_id)
    if error.retry_after_seconds is not None:
        response.headers["Retry-After"] = str(max(1, math.ceil(error.retry_after_seconds)))
    if error.status in CLOSING:
        response.headers["Connection"] = "close"
    return response


def outcome_of(status: int) -> Outcome:
    if status < 400:
        return "ok"
    if status in (429, 456, 503, 504):
        return "refused"
    return "invalid" if status < 500 else "failed"


def exception_handlers(dialects: tuple[Dialect, ...]) -> Mapping[Any, Callable[[Request, Any], Any]]:
    """For what is raised inside a route: ours, the validator's and the router's."""

    async def handle(request: Request, error: Exception) -> Response:
        record = record_in(request.scope)
        known = as_dragoman_error(error)
        record.reason = known.reason
        response = answer(choose_dialect(dialects, request.url.path), known, record.request_id)
        if isinstance(error, HTTPException):
            response.headers.update(error.headers or {})  # such as Allow
        return response

    return {DragomanError: handle, RequestValidationError: handle, HTTPException: handle}


def as_dragoman_error(error: Exception) -> DragomanError:
    if isinstance(error, DragomanError):
        return error
    if isinstance(error, RequestValidationError):
        return _from_validation(error)
    status = error.status_code if isinstance(error, HTTPException) else 500
    if status == 404:
        return NotFound("There is nothing at this path; /docs lists what there is.")
    if status == 405:
        return MethodNotAllowed("This path does not take this method; /docs says which it takes.")
    if isinstance(error.__cause__, UnicodeDecodeError):
        return BadRequest("The body is not UTF-8; encode it so.")
    if status < 500:
        return BadRequest("The request could not be read; check its body and its headers.")
    return InternalError("Something went wrong here; the request id leads to it in the log.")


def _from_validation(error: RequestValidationError) -> DragomanError:
    problems = error.errors()
    if problems[0]["type"] == "json_invalid":
        return BadRequest("The body is not JSON.")
    if problems[0]["type"] in NO_OBJECT and tuple(problems[0]["loc"]) == ("body",):
        return BadRequest("The body must be a JSON object, sent with Content-Type: application/json.")
    sentences = dict.fromkeys(_sentence(problem) for problem in problems)  # a union complains once per member
    return InvalidRequest("; ".join(list(sentences)[:5]) + ".")


def _sentence(problem: Mapping[str, Any]) -> str:
    names = [str(part) for part in problem["loc"][1:2]]
    name = names[0] if names and FIELD.fullmatch(names[0]) else "a field"
    if problem["type"] == "extra_forbidden":
        return f"{name} is not a field of this request"
    if name == "text" and problem["type"] not in ("missing", "too_short", "too_long"):
        several = len(problem["loc"]) > 2  # behind the field's name: which member of the union complains
        return "text must be a string" + " or a list of strings" * several
    if name in ("source", "target") and problem["type"] != "missing":
        either = ", or auto" if name == "source" else ""
        return f"{name} must be a language code such as pt or pt-BR{either}; /v1/languages lists those that are served"
    if problem["type"] in ("value_error", "assertion_error"):
        return str(problem["msg"]).removeprefix("Value error, ")
    return f"{name}: {str(problem['msg'])[0].lower()}{str(problem['msg'])[1:]}"
