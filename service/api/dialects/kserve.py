"""KServe's version 2 endpoints: health, the server and its models. They need no key.

`/v2` is KServe's prefix as well as DeepL's, and no path of one is a path of the other.
"""

import importlib.metadata
from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from dragoman.service.api.api_request import ApiRequest
from dragoman.service.api.dialects.base import Dialect
from dragoman.service.api.dialects.operations import LABEL, PROBE_RESPONSES, liveness, readiness
from dragoman.service.api.json_answer import JsonAnswer
from dragoman.service.api.problems import document_problems, render_problem
from dragoman.service.catalog.served import BundleStatus
from dragoman.service.errors import NotFound

OPTIONAL_TEXT = {"anyOf": [{"type": "string"}, {"type": "null"}], "title": "Version"}
PARAMETERS: dict[str, Any] = {
    "parameters": [
        {"name": "name", "in": "path", "required": True, "schema": {"type": "string", "title": "Name"}},
        {"name": "version", "in": "query", "required": False, "schema": OPTIONAL_TEXT},
    ]
}

router = APIRouter(prefix="/v2", tags=["operations"])


@router.get("/health/live", summary="KServe: the process answers")
async def kserve_live(request: ApiRequest) -> Response:
    return liveness()


@router.get("/health/ready", summary="KServe: requests are welcome", responses=PROBE_RESPONSES)
async def kserve_ready(request: ApiRequest) -> Response:
    return readiness(request)


@router.get("", summary="KServe: what this server is")
async def kserve_server(request: ApiRequest) -> Response:
    return JsonAnswer({"name": "dragoman", "version": importlib.metadata.version("dragoman"), "extensions": []})


@router.get(
    "/models/{name}/ready",
    summary="KServe: this bundle serves",
    responses=document_problems(NotFound),
    openapi_extra=PARAMETERS,
)
@router.get("/models/{name}/versions/{version}/ready", include_in_schema=False)
async def kserve_model_ready(request: ApiRequest) -> Response:
    status = _status(request)
    ready = status.state != "failed"
    return JsonAnswer({"name": status.bundle.name, "ready": ready}, 200 if ready else 503)


@router.get(
    "/models/{name}",
    summary="KServe: what this bundle is",
    responses=document_problems(NotFound),
    openapi_extra=PARAMETERS,
)
@router.get("/models/{name}/versions/{version}", include_in_schema=False)
async def kserve_model(request: ApiRequest) -> Response:
    bundle = _status(request).bundle
    tensor = [{"name": "text", "datatype": "BYTES", "shape": [-1]}]
    described = {"name": bundle.name, "versions": [bundle.version], "platform": "dragoman"}
    return JsonAnswer({**described, "inputs": tensor, "outputs": tensor})


def _status(request: ApiRequest) -> BundleStatus:
    """Of the bundle with this name, or of the one that serves the pair of this name, such as `pt-en`."""
    name = request.path_params["name"]
    version = request.path_params.get("version") or request.query_params.get("version")
    statuses = [each for each in request.rooms.catalog.statuses() if version in (None, each.bundle.version)]
    for status in sorted(statuses, key=lambda each: each.bundle.name != name):
        if name in (status.bundle.name, *(f"{pair.source}-{pair.target}" for pair in status.bundle.pairs)):
            return status
    raise NotFound("No bundle of this name and version serves; /v1/models lists them.")


DIALECT = Dialect(
    LABEL,
    (router,),
    render_problem,
    prefixes=("/v2/health", "/v2/models"),
    quiet_paths=("/v2/health/live", "/v2/health/ready"),
)
