"""For the people and programs that run the server: probes and metrics. They need no key.

Live means that the process answers; ready, that a bundle is loaded or can be, and the server is not about to stop.
This dialect also answers for every path that belongs to no other.
"""

from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from dragoman.service.api.api_request import ApiRequest
from dragoman.service.api.dialects.base import Dialect
from dragoman.service.api.json_answer import JsonAnswer
from dragoman.service.api.problems import document_problems, render_problem
from dragoman.service.errors import Draining, InternalError, NotReady

LABEL = "operations"
PROBE_RESPONSES: dict[int | str, dict[str, Any]] = {
    503: {"description": "Loading, or about to stop", "content": {"application/json": {}}}
}

router = APIRouter(tags=["operations"])


def liveness() -> Response:
    return JsonAnswer({"live": True})


def readiness(request: ApiRequest) -> Response:
    lifecycle = request.rooms.lifecycle
    loadable = any(status.state != "failed" for status in request.rooms.catalog.statuses())
    if lifecycle.ready and loadable:
        return JsonAnswer({"ready": True})
    reason = Draining.reason if lifecycle.draining else NotReady.reason
    return JsonAnswer({"ready": False, "reason": reason}, 503)


@router.get("/healthz", summary="The process answers")
@router.head("/healthz", include_in_schema=False)
async def healthz(request: ApiRequest) -> Response:
    return liveness()


@router.get("/readyz", summary="Requests are welcome", responses=PROBE_RESPONSES)
@router.head("/readyz", include_in_schema=False)
async def readyz(request: ApiRequest) -> Response:
    return readiness(request)


@router.get(
    "/metrics",
    summary="Prometheus metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}, **document_problems(InternalError)},
)
async def get_metrics(request: ApiRequest) -> Response:
    content, content_type = request.rooms.metrics.exposition(request.header(b"accept") or "")
    return Response(content, headers={"Content-Type": content_type})


DIALECT = Dialect(LABEL, (router,), render_problem, prefixes=("/",), quiet_paths=("/healthz", "/readyz", "/metrics"))
