"""The OpenAPI document, and whether the server keeps to it."""

import re
from pathlib import Path

import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from dragoman.service.app import create_app
from dragoman.service.settings import Settings
from tests.api.conftest import OpenClient
from tests.api.fakes import FakeTranslator, fake_parts

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    unsupported_method,
]


def load_document() -> schemathesis.BaseSchema:
    app = create_app(Settings(watch=False), build=fake_parts(FakeTranslator()))
    document = schemathesis.openapi.from_asgi("/openapi.json", app)
    return document.exclude(path="/v1/live")  # which never ends


schema = load_document()


@schema.parametrize()
@settings(
    max_examples=15,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
    derandomize=True,
)
def test_nothing_that_the_document_allows_breaks_the_server(case: schemathesis.Case) -> None:
    """No 5xx, no status and no body that the document does not tell, for whatever a generator makes of it."""
    case.call_and_validate(checks=CHECKS)


async def test_every_route_is_documented_with_an_example(open_client: OpenClient) -> None:
    """Who opens the documents should be able to press the button."""
    async with open_client() as client:
        document = (await client.get("/openapi.json")).json()
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            assert operation["summary"], path
            if method == "post" and path != "/v2/languages":
                content = operation["requestBody"]["content"]["application/json"]
                name = content["schema"].get("$ref", "").rpartition("/")[2]
                model = document["components"]["schemas"].get(name, {})
                assert content.get("example") or model.get("examples"), path


async def test_the_document_pages_work_without_internet(open_client: OpenClient) -> None:
    """Many servers of this kind run where there is none; nothing may come from a CDN."""
    async with open_client() as client:
        page = await client.get("/docs")
        assert page.status_code == 200
        assert "'self'" in page.headers["content-security-policy"]
        links = re.findall(r'(?:src|href)="([^"]+)"', page.text)
        assert len(links) == 3
        for link in links:
            assert "//" not in link
            assert (await client.get(f"/{link}")).status_code == 200
        assert "openapi.json" in (await client.get("/docs/start.js")).text


async def test_documents_can_be_switched_off(open_client: OpenClient) -> None:
    """Some do not want to show what they serve."""
    async with open_client(pages=False) as client:
        assert [(await client.get(path)).status_code for path in ("/docs", "/openapi.json")] == [404, 404]


def test_no_page_asks_another_host() -> None:
    """Also not in the files that we wrote."""
    root = Path(__file__).parents[2] / "service"
    for path in [*root.glob("api/static/*"), *root.glob("playground/**/*.[jhc]*")]:
        assert not re.search(r"https?://(?!www\.w3\.org|localhost|127\.0\.0\.1)", path.read_text()), path
