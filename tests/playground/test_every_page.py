"""What holds for every view: accessible, light and dark, wide and narrow, small, still, and alone with its server."""

from pathlib import Path
from typing import Any
from urllib.parse import quote

import axe_playwright_python
import pytest
from playwright.sync_api import Page, expect

from tests.playground.conftest import OpenPage, Watched
from tests.playground.slow_link import slow_link

AXE = Path(axe_playwright_python.__file__).with_name("axe.min.js")
TEXT = "A porta do jardim ficou aberta. O gato dorme no sol."
MAX_BYTES = 150_000
SHIFTS = """
window.shifted = [];
new PerformanceObserver((list) => {
  const what = (node) => (node?.outerHTML ?? node?.textContent ?? "gone").slice(0, 80);
  for (const shift of list.getEntries()) window.shifted.push([shift.value, shift.sources.map((one) => what(one.node))]);
}).observe({ type: "layout-shift", buffered: true });
"""
VIEWS = {
    "translate": ("#output .segment[href]", f"?from=pt&to=en&text={quote(TEXT)}"),
    "explain": (".tree", f"?from=pt&to=en&text={quote(TEXT)}"),
    "live": (".slot", ""),
    "learn": (".step canvas", ""),
}


def open_view(open_page: OpenPage, url: str, view: str, **how: Any) -> Page:
    wait_for, query = VIEWS[view]
    page = open_page(f"{url}/#/{view}{query}", **how)
    expect(page.locator(wait_for).first).to_be_visible()
    return page


def serious(page: Page) -> list[str]:
    """What axe-core finds that is serious or worse, with the first element of each."""
    page.evaluate(AXE.read_text("utf-8"))
    result = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
    return [
        f"{found['id']}: {found['help']}: {found['nodes'][0]['html']}"
        for found in result["violations"]
        if found["impact"] in ("serious", "critical")
    ]


@pytest.mark.parametrize("view", VIEWS)
def test_axe_finds_nothing_serious(open_page: OpenPage, model_url: str, view: str) -> None:
    """Contrast, names, roles, order: for those who cannot see the page as we do."""
    page = open_view(open_page, model_url, view)
    if view == "translate":
        for drawer in ("Options", "Copy as code"):
            page.get_by_text(drawer).click()
    assert serious(page) == []


@pytest.mark.parametrize("view", VIEWS)
def test_a_phone_shows_it_without_sideways_scrolling(open_page: OpenPage, model_url: str, view: str) -> None:
    """360 pixels wide, dark: nothing sticks out, and nothing serious is wrong there either."""
    page = open_view(open_page, model_url, view, width=360, height=740, scheme="dark")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert serious(page) == []


def test_the_theme_can_be_chosen(open_page: OpenPage, model_url: str) -> None:
    """Against the system's, and remembered."""
    page = open_view(open_page, model_url, "translate", scheme="light")
    background = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(background)
    page.get_by_role("button", name="Colour theme").click()
    page.get_by_role("button", name="Colour theme: light").click()
    dark = page.evaluate(background)
    assert dark != light
    page.reload()
    page.wait_for_selector("html[data-ready]")
    assert page.evaluate(background) == dark


def test_the_whole_page_is_small_and_asks_nobody_else(open_page: OpenPage, model_url: str, watched: Watched) -> None:
    """Every file of every view together, uncompressed, is under 150 kB."""
    sizes: dict[str, int] = {}
    page = open_page(model_url)
    page.on(
        "response", lambda answer: sizes.update({answer.url: len(answer.body())}) if "/v1/" not in answer.url else None
    )
    page.reload()
    for view, (wait_for, query) in VIEWS.items():
        page.goto(f"{model_url}/#/{view}{query}")
        expect(page.locator(wait_for).first).to_be_visible()
    assert len(sizes) >= 12
    assert sum(sizes.values()) <= MAX_BYTES
    assert {asked.split("/")[2] for asked in watched.urls} == {model_url.split("/")[2]}


@pytest.mark.parametrize("view", VIEWS)
def test_nothing_jumps_while_the_page_loads(browser: Any, model_url: str, view: str) -> None:
    """Layout shifts, as browsers count them, from the first paint until the view stands, on a slow connection."""
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    page = context.new_page()
    page.add_init_script(SHIFTS)
    with slow_link(model_url) as url:
        page.goto(f"{url}/#/{view}")
        page.wait_for_selector("html[data-ready]")
        page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        shifted = page.evaluate("window.shifted")
        context.close()
    assert sum(value for value, _ in shifted) < 0.01, shifted
