"""Pages for people: the API documentation and the playground. Every file comes from this server; nothing from a CDN.

Swagger UI's files come from the package `fastapi-offline`, of which we use nothing else. The playground is a directory
of static files.
"""

import importlib.util
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from fastapi import APIRouter
from starlette.responses import FileResponse, HTMLResponse, Response

from dragoman.service.settings import Settings

HERE = Path(__file__).parent
PLAYGROUND = HERE.parent / "playground"
CONTENT_SECURITY_POLICY = (
    "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; object-src 'none'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
PAGE_HEADERS = {"Content-Security-Policy": CONTENT_SECURITY_POLICY, "Cache-Control": "no-cache"}
# Our own page needs only its own files and this server, and never makes HTML out of text.
PLAYGROUND_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
    ),
    "Cache-Control": "no-cache",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
DOCS_PAGE = """<!doctype html>
<html lang="en">
<head>
  <meta charset="utf-8">
  <meta name="viewport" content="width=device-width, initial-scale=1">
  <title>Dragoman: the API</title>
  <link rel="stylesheet" href="docs/swagger-ui.css">
</head>
<body>
  <div id="swagger-ui"></div>
  <script src="docs/swagger-ui-bundle.js"></script>
  <script src="docs/start.js"></script>
</body>
</html>
"""


def docs_router() -> APIRouter:
    router = APIRouter(include_in_schema=False)
    files = {
        "swagger-ui.css": _swagger_files() / "swagger-ui.css",
        "swagger-ui-bundle.js": _swagger_files() / "swagger-ui-bundle.js",
        "start.js": HERE / "static" / "docs.js",
    }

    @router.get("/docs")
    async def get_docs() -> Response:
        return HTMLResponse(DOCS_PAGE, headers=PAGE_HEADERS)

    for name, path in files.items():
        router.add_api_route(f"/docs/{name}", _file_route(path), methods=["GET"])
    return router


def _file_route(path: Path, headers: Mapping[str, str] = PAGE_HEADERS) -> Callable[[], Awaitable[Response]]:
    async def get_file() -> Response:
        return FileResponse(path, headers=headers)

    return get_file


def _swagger_files() -> Path:
    found = importlib.util.find_spec("fastapi_offline")  # finds it without running any of it
    assert found is not None, "fastapi-offline is a dependency of ours"
    return Path(found.origin or "").parent / "static"


def has_playground(settings: Settings) -> bool:
    return settings.pages and (PLAYGROUND / "index.html").is_file()


def playground_router(directory: Path = PLAYGROUND) -> APIRouter:
    """A route for each file, and `/` for the page. A mount would answer every path that no other route has, and a wrong
    method (405) could no longer be told from an unknown path (404)."""
    router = APIRouter(include_in_schema=False)
    router.add_api_route("/", _file_route(directory / "index.html", PLAYGROUND_HEADERS), methods=["GET"])
    for path in sorted(directory.rglob("*")):
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(directory).parts):
            name = path.relative_to(directory).as_posix()
            router.add_api_route(f"/{name}", _file_route(path, PLAYGROUND_HEADERS), methods=["GET"])
    return router
