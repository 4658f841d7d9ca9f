"""The Live view in a real browser, while a batch is held in mid-air."""

import re
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
from playwright.sync_api import expect

from tests.api.rooms import Runners, write_bundles
from tests.playground.conftest import OpenPage, Watched, serving

SENTENCES = [f"A porta do jardim ficou aberta {number} vezes." for number in range(24)]


def test_rows_join_and_leave_before_your_eyes(open_page: OpenPage, tmp_path: Path) -> None:
    """Rows, occupancy and queue while work is held; nothing of it when it is done; never any text."""
    runners, gate = Runners(), threading.Event()
    runners.before_step = lambda step: None
    bundles = write_bundles(tmp_path, "copy")
    with serving(runners.build, bundles=bundles, max_rows=16) as url, ThreadPoolExecutor(len(SENTENCES)) as crowd:
        page = open_page(f"{url}/#/live")
        rows, queue = (page.locator(f"[data-tile={name}] b") for name in ("rows", "queue"))
        expect(rows).to_have_text("0 / 32")
        runners.before_step = lambda step: gate.wait(30) and None
        body = {"source": "pt", "target": "en"}
        asked = [crowd.submit(httpx.post, f"{url}/v1/translate", json={"text": text, **body}) for text in SENTENCES]
        try:
            expect(rows).to_have_text(re.compile(r"^([1-9]|1\d) / 32$"))
            expect(queue).to_have_text(re.compile(r"^[1-9]"))
            expect(page.locator("[data-pair=pt-en] .slot.busy").first).to_be_visible()
            expect(page.locator("[data-pair=en-pt] .slot.busy")).to_have_count(0)
            assert "porta" not in page.locator("main").inner_text()
        finally:
            gate.set()
        assert {each.result().status_code for each in asked} == {200}
        expect(rows).to_have_text("0 / 32")
        expect(queue).to_have_text("0")
        page.goto("about:blank")  # a feed that is watched keeps a server from stopping at once


def test_a_feed_that_stops_is_told_and_taken_up_again(open_page: OpenPage, watched: Watched, tmp_path: Path) -> None:
    """A dashboard that freezes silently is worse than none."""
    watched.refusals_expected = True
    bundles = write_bundles(tmp_path, "copy")
    with serving(Runners().build, bundles=bundles, grace_seconds=0.2) as url:
        page = open_page(f"{url}/#/live")
        expect(page.locator("[data-tile=rows] b")).to_have_text("0 / 32")
        port = int(url.rpartition(":")[2])
    expect(page.get_by_role("alert").locator("visible=true")).to_contain_text("The feed stopped")
    with serving(Runners().build, bundles=bundles, port=port):
        expect(page.locator("#live-problem")).to_be_hidden()
        page.goto("about:blank")
