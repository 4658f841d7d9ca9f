"""A dialect: all that makes one API differ from the others, in one object.

The app lists its dialects; nothing else knows one by name. A dialect brings its routes, the shape of request by which
it claims a path that several dialects share, its error shape, the place of its key, its way to carry a warning and its
label in metrics and logs.

Paths that several dialects share are decided by order: each is asked whether it claims the request, and the last one
takes what no other claims. Where the body is not known yet (it is too large, it never arrived), the last one answers.
"""

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fastapi import APIRouter
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.responses import Response

from dragoman.service.api.api_request import ApiRequest, bearer_key
from dragoman.service.errors import DragomanError
from dragoman.service.translation.contract import TranslationResult

WARNINGS_HEADER = "X-Dragoman-Warnings"
DOCUMENTED_WARNINGS: dict[int | str, dict[str, Any]] = {  # for the routes that use `warn_in_header`
    200: {
        "description": "Successful Response",
        "headers": {
            "Content-Language": {
                "description": "The language given, where the region that was asked for is not there",
                "schema": {"type": "string"},
            },
            WARNINGS_HEADER: {
                "description": "Only if something may be lost: the native API's warnings and finish reasons",
                "schema": {"type": "string"},
            },
        },
    }
}


async def key_in_header(request: ApiRequest) -> str | None:
    return bearer_key(request)


async def every_request(request: ApiRequest) -> bool:
    return True


def warn_in_body(answer: Response, result: TranslationResult) -> None:
    """The body has a field for warnings, so there is nothing to add."""


def warn_in_header(answer: Response, result: TranslationResult) -> None:
    """The words that the native API would give as `warnings` and as `finish_reason`, where they are not `eos`."""
    segments = [segment for translation in result.translations for segment in translation.segments]
    words = {str(word) for segment in segments for word in (*segment.warnings, segment.finish_reason)} - {"eos"}
    answer.headers["Content-Language"] = result.target  # which may be another region than the one that was asked for
    if words:
        answer.headers[WARNINGS_HEADER] = ", ".join(sorted(words))


@dataclass(frozen=True, eq=False)
class Dialect:
    label: str  # in metrics, logs and traces; dialects may share one
    routers: tuple[APIRouter, ...]  # every endpoint takes an ApiRequest and nothing else
    render_error: Callable[[DragomanError, str], Response]  # of the error and the request id
    prefixes: tuple[str, ...] = ()  # also paths without an endpoint are this dialect's, if they begin so
    claims: Callable[[ApiRequest], Awaitable[bool]] = every_request  # asked only for a path that several share
    find_key: Callable[[ApiRequest], Awaitable[str | None]] = key_in_header
    carry_warnings: Callable[[Response, TranslationResult], None] = warn_in_header
    quiet_paths: tuple[str, ...] = ()  # endpoints whose good answers are not logged: probes ask all the time
    key_schemes: Mapping[str, Any] = field(default_factory=dict)  # how a key is sent, for the OpenAPI document
    bodies: tuple[type[BaseModel], ...] = ()  # JSON bodies that the OpenAPI document should describe


class Endpoint(NamedTuple):
    dialect: Dialect
    path: str  # as declared, with parameters in braces
    answer: Callable[[ApiRequest], Awaitable[Response]]


class DialectIndex:
    """Finds a request's dialect and its endpoint; made once, from all dialects of an app."""

    def __init__(self, dialects: Sequence[Dialect]) -> None:
        self._endpoints: dict[str, dict[str, list[Endpoint]]] = {}  # by path as declared, then by method
        self._paths: dict[str, Dialect] = {}  # the last dialect that has an endpoint there
        self._patterns: list[tuple[re.Pattern[str], str]] = []  # of paths with parameters
        for dialect in dialects:
            for route in _routes(dialect):
                self._add(dialect, route)
        owners = [(prefix, dialect) for dialect in dialects for prefix in dialect.prefixes]
        self._owners = sorted(owners, key=lambda owner: -len(owner[0]))  # the longest prefix first
        self._last = dialects[-1]

    def of_path(self, path: str) -> Dialect:
        """The dialect that answers for a path, as far as the path alone tells, also if nothing is there."""
        known = self._paths.get(path)
        if known is not None:
            return known
        return next((dialect for prefix, dialect in self._owners if path.startswith(prefix)), self._last)

    def endpoints(self, method: str, path: str) -> tuple[Sequence[Endpoint], dict[str, Any]]:
        """The endpoints of a path, one for each dialect that has it, and the path's parameters."""
        methods = self._endpoints.get(path)
        if methods is not None:
            return methods.get(method, ()), {}
        for pattern, declared in self._patterns:
            if match := pattern.match(path):
                return self._endpoints[declared].get(method, ()), match.groupdict()
        return (), {}

    def _add(self, dialect: Dialect, route: APIRoute) -> None:
        if route.param_convertors and route.path not in self._endpoints:
            self._patterns.append((route.path_regex, route.path))
        self._paths[route.path] = dialect
        methods = self._endpoints.setdefault(route.path, {})
        for method in route.methods or ():
            methods.setdefault(method, []).append(Endpoint(dialect, route.path, route.endpoint))


def _routes(dialect: Dialect) -> Iterator[APIRoute]:
    for router in dialect.routers:
        for route in router.routes:
            assert isinstance(route, APIRoute)
            yield route
