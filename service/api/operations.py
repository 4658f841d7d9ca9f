"""For whoever runs the server: probes, KServe's health endpoints, metrics.

Live means that the process answers; ready, that a bundle is loaded and the server is not about to stop. `/v2` is
KServe's prefix as well as DeepL's, and no path of one is a path of the other. These need no key.
"""

import importlib.metadata
from typing import Any

import orjson
from fastapi import APIRouter, Request
from starlette.responses import Response

from dragoman.service.api.context import rooms_of
from dragoman.service.api.native import document_refusals, render_error
from dragoman.service.api.refusals import Dialect
from dragoman.service.bundles.manifest import Bundle
from dragoman.service.errors import Draining, InternalError, NotFound, NotReady

# Claims whatever no other API does, so it is asked last.
DIALECT = Dialect("operations", claims=lambda path: True, render=render_error)
router = APIRouter(tags=["operations"])
PROBE_RESPONSES: dict[int | str, dict[str, Any]] = {
    503: {"description": "Loading, or about to stop", "content": {"application/json": {}}}
}


def _probe(name: str, good: bool, reason: str) -> Response:
    content = {name: good} if good else {name: good, "reason": reason}
    return Response(orjson.dumps(content), 200 if good else 503, media_type="application/json")


def _readiness(request: Request) -> Response:
    lifecycle = rooms_of(request).lifecycle
    return _probe("ready", lifecycle.ready, Draining.reason if lifecycle.draining else NotReady.reason)


@router.get("/healthz", summary="The process answers")
@router.head("/healthz", include_in_schema=False)
async def healthz() -> Response:
    return _probe("live", True, "")


@router.get("/readyz", summary="Requests are welcome", responses=PROBE_RESPONSES)
@router.head("/readyz", include_in_schema=False)
async def readyz(request: Request) -> Response:
    return _readiness(request)


@router.get("/v2/health/live", summary="KServe: the process answers")
async def kserve_live() -> Response:
    return _probe("live", True, "")


@router.get("/v2/health/ready", summary="KServe: requests are welcome", responses=PROBE_RESPONSES)
async def kserve_ready(request: Request) -> Response:
    return _readiness(request)


@router.get("/v2", summary="KServe: what this server is")
async def kserve_server() -> Response:
    return _json({"name": "dragoman", "version": importlib.metadata.version("dragoman"), "extensions": []})


@router.get("/v2/models/{name}/ready", summary="KServe: this bundle serves", responses=document_refusals(NotFound))
@router.get("/v2/models/{name}/versions/{version}/ready", include_in_schema=False)
async def kserve_model_ready(name: str, request: Request, version: str | None = None) -> Response:
    _bundle(request, name, version)
    return _json({"name": name, "ready": True})


@router.get("/v2/models/{name}", summary="KServe: what this bundle is", responses=document_refusals(NotFound))
@router.get("/v2/models/{name}/versions/{version}", include_in_schema=False)
async def kserve_model(name: str, request: Request, version: str | None = None) -> Response:
    bundle = _bundle(request, name, version)
    tensor = [{"name": "text", "datatype": "BYTES", "shape": [-1]}]
    described = {"name": bundle.name, "versions": [bundle.version], "platform": "dragoman"}
    return _json({**described, "inputs": tensor, "outputs": tensor})


@router.get(
    "/metrics",
    summary="Prometheus metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}, **document_refusals(InternalError)},
)
async def get_metrics(request: Request) -> Response:
    content, content_type = rooms_of(request).metrics.exposition(request.headers.get("accept", ""))
    return Response(content, headers={"Content-Type": content_type})


def _bundle(request: Request, name: str, version: str | None) -> Bundle:
    for bundle in rooms_of(request).catalog.bundles():
        if bundle.name == name and version in (None, bundle.version):
            return bundle
    raise NotFound("No bundle of this name and version serves; /v1/models lists them.")


def _json(content: Any) -> Response:
    return Response(orjson.dumps(content), media_type="application/json")
