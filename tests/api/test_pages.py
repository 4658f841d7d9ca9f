"""The pages for people: the playground, served from a directory of files."""

from pathlib import Path

import pytest
from fastapi import FastAPI

from dragoman.service.api.pages import playground_router
from tests.api.conftest import OpenClient


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "index.html").write_text("<title>page</title>")
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "app.js").write_text("1")
    (tmp_path / ".hidden").write_text("no")
    return tmp_path


async def test_the_page_and_its_files_are_served(open_client: OpenClient, directory: Path) -> None:
    """With a policy that lets them load from here and from nowhere else."""
    app = FastAPI()
    app.include_router(playground_router(directory))
    async with open_client(app=app) as client:
        page, script, hidden = [await client.get(path) for path in ("/", "/parts/app.js", "/.hidden")]
        outside = await client.get("/../conftest.py")
    assert page.text == "<title>page</title>"
    assert "'self'" in page.headers["content-security-policy"]
    assert "http" not in page.headers["content-security-policy"]
    assert script.headers["content-type"].startswith("text/javascript")
    assert (hidden.status_code, outside.status_code) == (404, 404)


async def test_the_page_takes_no_path_from_the_apis(open_client: OpenClient) -> None:
    """What is not there is 404, and a wrong method 405, with or without a page."""
    for pages in (True, False):
        async with open_client(pages=pages) as client:
            assert (await client.get("/nothing")).status_code == 404
            assert (await client.get("/v1/translate")).headers["allow"] == "POST"


async def test_the_page_can_be_switched_off(open_client: OpenClient) -> None:
    """Some want an API and nothing else."""
    async with open_client(pages=False) as client:
        assert (await client.get("/")).status_code == 404
