"""A headless Chromium, and servers for it to look at.

Every page that a test opens is watched: an error on its console, a request to another host or a blocked one fails the
test. Without Chromium the browser's tests are skipped; where to get it stands in the message.
"""

import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import sync_playwright

from dragoman.service.app import create_app
from dragoman.service.assembly import build_parts
from dragoman.service.bundles.manifest import Bundle
from dragoman.service.settings import Settings
from tests.api.conftest import RunningServer

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
ARGUMENTS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
# What a browser itself says of an answer that a test asks for.
EXPECTED = re.compile(r"Failed to load resource: the server responded with a status of 4\d\d|net::ERR_|ERR_CONNECTION")
TIMEOUT_MS = 15_000

OpenPage = Callable[..., Any]
Serve = Callable[..., AbstractContextManager[str]]


@dataclass
class Watched:
    """What a page did that it should not."""

    problems: list[str] = field(default_factory=list)
    urls: list[str] = field(default_factory=list)
    refusals_expected: bool = False

    def watch(self, page: Any) -> None:
        page.on("console", lambda message: self._console(message.type, message.text))
        page.on("pageerror", lambda error: self.problems.append(f"uncaught: {error}"))
        page.on("request", lambda request: self._request(request.url))

    def _console(self, kind: str, text: str) -> None:
        if kind in ("error", "warning") and not (self.refusals_expected and EXPECTED.search(text)):
            self.problems.append(f"{kind}: {text}")

    def _request(self, url: str) -> None:
        self.urls.append(url)
        if urlsplit(url).hostname != "127.0.0.1":
            self.problems.append(f"asked another host: {url}")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """One for each file: while playwright runs, its loop is the thread's, and no asynchronous test could have one."""
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine: `apt-get install chromium` to test the playground")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))
        yield browser
        browser.close()


@pytest.fixture
def watched() -> Watched:
    return Watched()


@pytest.fixture
def open_page(browser: Any, watched: Watched) -> Iterator[OpenPage]:
    contexts = []

    def open_at(url: str, width: int = 1200, height: int = 900, scheme: str = "light") -> Any:
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
        contexts.append(context)
        context.set_default_timeout(TIMEOUT_MS)
        page = context.new_page()
        watched.watch(page)
        page.goto(url)
        page.wait_for_selector("html[data-ready]")
        return page

    yield open_at
    for context in contexts:
        context.close()
    assert watched.problems == []


@contextmanager
def serving(build: Any, **settings: Any) -> Iterator[str]:
    given = Settings(**{"watch": False, "port": 0, "grace_seconds": 2, "threads": 1, "max_rows": 16, **settings})
    with RunningServer(create_app(given, build=build), given) as url:
        yield url


@pytest.fixture(scope="module")
def model_url(tiny_bundle: Bundle) -> Iterator[str]:
    """A server with a tiny model that was really exported."""
    with serving(build_parts, bundles=Path(tiny_bundle.path)) as url:
        yield url
