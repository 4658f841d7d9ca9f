"""Take the README's pictures of the playground again: `make screenshots`.

Starts a server on a free port with the embedded bundles (or those of DIR), opens it in headless Chromium and writes
`docs/*.png`. For the picture of the running batch it also sends the server our own test sentences for a few seconds.
"""

import argparse
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
from playwright.sync_api import Browser, Page, expect, sync_playwright

HERE = Path(__file__).parent
SENTENCES = HERE.parent / "tests" / "data" / "sentences.tsv"
NUM_CLIENTS = 24
TEXTS = {
    "pt": "O gato preto dorme no jardim. Os meus amigos gostam de tomates porque são saborosos.",
    "en": "The black cat is sleeping in the garden. My friends like tomatoes because they are tasty.",
}
EXPLAINED = {
    "en": "My friends like tomatoes because they are tasty.",
    "pt": "Os meus amigos gostam de tomates porque são saborosos.",
}
WIDE, PHONE = {"width": 1200, "height": 820}, {"width": 390, "height": 844}


@contextmanager
def serving(bundles: Path | None, port: int) -> Iterator[str]:
    command = [
        sys.executable,
        "-m",
        "dragoman.service.commands.main",
        "serve",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
    ]
    command += ["--bundles", str(bundles)] if bundles else []
    # Without the cache, so that a second picture of one sentence has timings, too.
    environment = {**os.environ, "DRAGOMAN_CACHE_BYTES": "0", "DRAGOMAN_LOG_LEVEL": "error"}
    server = subprocess.Popen(command, cwd=HERE.parent, env=environment)
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(240):
            if server.poll() is not None:
                sys.exit("the server did not start; run `dragoman doctor` to see why")
            try:
                httpx.get(f"{url}/readyz", timeout=1).raise_for_status()
                break
            except httpx.HTTPError:
                threading.Event().wait(0.25)
        yield url
    finally:
        server.terminate()
        server.wait(60)


@contextmanager
def crowd(url: str, pairs: list[tuple[str, str]]) -> Iterator[None]:
    """Clients that translate one sentence after another until the picture is taken."""
    header, *rows = [line.split("\t") for line in SENTENCES.read_text("utf-8").splitlines()]
    done = threading.Event()

    def client(number: int) -> None:
        source, target = pairs[number % len(pairs)]
        with httpx.Client(timeout=60) as http:
            turn = number
            while not done.is_set():
                text = rows[turn % len(rows)][header.index(source)]
                body = {"text": f"{text} {turn}", "source": source, "target": target}
                http.post(f"{url}/v1/translate", json=body | ({"beam_size": 4} if turn % 4 == 0 else {}))
                turn += NUM_CLIENTS

    with ThreadPoolExecutor(NUM_CLIENTS) as threads:
        for number in range(NUM_CLIENTS):
            threads.submit(client, number)
        try:
            yield
        finally:
            done.set()


def open_page(browser: Browser, address: str, size: dict[str, int], scheme: str) -> Page:
    context = browser.new_context(viewport=size, color_scheme=scheme, device_scale_factor=1)  # type: ignore[arg-type]
    context.set_default_timeout(30_000)
    page = context.new_page()
    page.goto(address)
    page.wait_for_selector("html[data-ready]")
    return page


def save(page: Page, name: str, **options: Any) -> None:
    page.wait_for_timeout(400)  # transitions end
    page.screenshot(path=HERE / f"{name}.png", **options)
    page.context.close()
    print(HERE / f"{name}.png")


def take_all(browser: Browser, url: str, pairs: list[tuple[str, str]]) -> None:
    source, target = next((pair for pair in pairs if pair[0] == "pt"), pairs[0])
    query = urlencode({"from": source, "to": target, "text": TEXTS[source]})
    for name, size, scheme in (("light", WIDE, "light"), ("dark", WIDE, "dark"), ("phone", PHONE, "light")):
        page = open_page(browser, f"{url}/#/translate?{query}", size, scheme)
        expect(page.locator("#stats")).to_contain_text("tokens", timeout=30_000)
        save(page, name)
    take_explain(browser, url, pairs)
    with crowd(url, pairs):
        page = open_page(browser, f"{url}/#/live", WIDE, "dark")
        page.wait_for_timeout(6000)
        save(page, "live")
    page = open_page(browser, f"{url}/#/learn", {"width": 1200, "height": 1500}, "light")
    expect(page.locator(".step").first).to_be_visible()
    save(page, "learn")


def take_explain(browser: Browser, url: str, pairs: list[tuple[str, str]]) -> None:
    source, target = next((pair for pair in pairs if pair[0] == "en"), pairs[0])
    query = urlencode({"from": source, "to": target, "text": EXPLAINED[source]})
    page = open_page(browser, f"{url}/#/explain?{query}", {"width": 1200, "height": 1640}, "light")
    chips = page.get_by_role("group", name="Portuguese" if target == "pt" else "English", exact=True)
    chips.get_by_role("button").nth(3).hover()
    save(page, "explain")


def main() -> None:
    parser = argparse.ArgumentParser(description="Take the README's pictures again.")
    parser.add_argument("--bundles", type=Path, help="instead of the embedded bundles")
    parser.add_argument("--port", type=int, default=8971)
    given = parser.parse_args()
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with serving(given.bundles, given.port) as url, sync_playwright() as driver:
        routes = httpx.get(f"{url}/v1/languages").json()["pairs"]
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        take_all(browser, url, [(route["source"], route["target"]) for route in routes if not route["pivot"]])
        browser.close()


if __name__ == "__main__":
    main()
