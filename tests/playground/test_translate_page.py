"""The Translate view in a real browser, over the whole service with runners that copy or reverse."""

import json
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

from tests.api.rooms import Runners, write_bundles
from tests.bundles.fakes import write_bundle
from tests.playground.conftest import OpenPage, Watched, serving

TEXT = "A porta do jardim ficou aberta."
ATTACK = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>'


def at(url: str, text: str, source: str = "pt", target: str = "en", view: str = "translate") -> str:
    return f"{url}/#/{view}?from={source}&to={target}&text={quote(text)}"


def output(page: Page) -> Any:
    return page.get_by_role("region", name="Translation", exact=True)


@pytest.fixture(scope="module")
def runners() -> Runners:
    return Runners()


@pytest.fixture(scope="module")
def url(runners: Runners, tmp_path_factory: pytest.TempPathFactory) -> Any:
    bundles = write_bundles(tmp_path_factory.mktemp("bundles"), "copy")
    with serving(runners.build, bundles=bundles) as found:
        yield found


@pytest.fixture(autouse=True)
def _free(runners: Runners) -> Any:
    yield
    runners.before_step = lambda step: None


def test_a_translation_streams_in_word_by_word(open_page: OpenPage, url: str, runners: Runners) -> None:
    """The first words are there while the last are still being decoded."""
    permits = threading.Semaphore(9)
    runners.before_step = lambda step: permits.acquire() and None
    page = open_page(url)
    page.get_by_role("combobox", name="From", exact=True).select_option("pt")
    page.get_by_label("Text to translate").fill(TEXT)
    expect(output(page)).to_have_text(re.compile(r"^A porta"))
    assert output(page).inner_text() != TEXT
    assert page.locator("#output[data-busy]").count() == 1
    permits.release(200)
    expect(output(page)).to_have_text(TEXT)
    expect(page.get_by_role("group", name="Timings")).to_contain_text("tokens/s")
    expect(page.locator("#output[data-busy]")).to_have_count(0)


def test_swap_turns_languages_and_texts(open_page: OpenPage, url: str) -> None:
    """What was the translation is now what is translated."""
    page = open_page(at(url, TEXT))
    expect(output(page)).to_have_text(TEXT)
    page.get_by_role("button", name="Swap languages").click()
    expect(page.get_by_role("combobox", name="From", exact=True)).to_have_value("en")
    expect(page.get_by_role("combobox", name="To", exact=True)).to_have_value("pt")
    expect(page.get_by_role("group", name="Timings")).to_contain_text("en-pt")
    expect(page.get_by_label("Text to translate")).to_have_value(TEXT)


def test_copy_and_clear(open_page: OpenPage, url: str) -> None:
    """The two things one does with a translation."""
    page = open_page(at(url, TEXT))
    expect(output(page)).to_have_text(TEXT)
    page.locator("#copy").click()
    expect(page.locator("#copy")).to_have_text("Copied")
    page.get_by_role("button", name="Clear").click()
    expect(page.get_by_label("Text to translate")).to_have_value("")
    expect(output(page)).to_have_text("The translation appears here, word by word.")
    assert "porta" not in page.url


def test_alternatives_are_listed_with_their_scores(open_page: OpenPage, url: str) -> None:
    """A beam of four, three shown: the best in the pane and two others below."""
    page = open_page(at(url, TEXT))
    page.get_by_text("Options").click()
    page.get_by_label("Beam").first.select_option("4")
    page.get_by_label("Alternatives").select_option("3")
    expect(page.locator("#alternatives li")).to_have_count(2)
    expect(page.locator("#alternatives .score").first).to_have_text(re.compile(r"-\d+\.\d{3}"))


def test_everything_works_from_the_keyboard(open_page: OpenPage, url: str) -> None:
    """Type, translate with Ctrl+Enter, and walk to the translation with Tab."""
    page = open_page(f"{url}/#/translate?from=pt&to=en")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement !== document.body")
    page.get_by_label("Text to translate").focus()
    page.keyboard.type(TEXT)
    page.keyboard.press("Control+Enter")
    expect(output(page)).to_have_text(TEXT)
    for _ in range(3):
        page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "output"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "segment"


def test_what_went_wrong_with_a_segment_is_visible(open_page: OpenPage, tmp_path: Path) -> None:
    """Nothing is lost silently, on the page either."""
    write_bundle(tmp_path / "pt-en", "loop", [("pt", "en")])
    with serving(Runners().build, bundles=tmp_path) as url:
        page = open_page(at(url, TEXT))
        expect(page.locator("#notes")).to_contain_text("began to repeat itself")
        expect(page.locator("#output .trouble")).to_have_count(1)


def test_a_shared_text_stays_in_the_fragment(open_page: OpenPage, url: str, watched: Watched) -> None:
    """It comes back from the address, and no request line, which servers log, ever held it."""
    page = open_page(url)
    page.get_by_role("combobox", name="From", exact=True).select_option("pt")
    page.get_by_label("Text to translate").fill(TEXT)
    expect(output(page)).to_have_text(TEXT)
    address = page.url
    assert "porta" in address
    again = open_page(address)
    expect(output(again)).to_have_text(TEXT)
    assert not any("porta" in asked.partition("#")[0] for asked in watched.urls)


@pytest.mark.parametrize("kind", ["Python", "deepl client"])
def test_copied_code_runs(open_page: OpenPage, url: str, kind: str) -> None:
    """What the page offers to copy gives the translation that it shows, whatever quotes the text has."""
    text = "Ela disse \"não\" e a 'porta' ficou aberta \\ fim."
    page = open_page(at(url, text))
    expect(output(page)).to_have_text(text)
    page.get_by_text("Copy as code").click()
    page.get_by_role("tab", name=kind).click()
    code = page.locator("#code").inner_text()
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert ran.stdout.strip() == text


def test_curl_carries_the_current_options(open_page: OpenPage, url: str) -> None:
    """The body between the quotes is the request that the page sends."""
    page = open_page(at(url, "Que dia d'água é hoje?"))
    page.get_by_text("Options").click()
    page.get_by_label("Beam").first.select_option("2")
    page.get_by_text("Copy as code").click()
    code = page.locator("#code").inner_text()
    body = json.loads(code.split("-d ", 1)[1].strip()[1:-1].replace("'\\''", "'"))
    assert body == {"text": "Que dia d'água é hoje?", "source": "pt", "target": "en", "beam_size": 2}


def test_a_busy_server_is_told_and_asked_again(open_page: OpenPage, watched: Watched, tmp_path: Path) -> None:
    """429 is no end: the page says so, waits as long as it was told, and then has the translation."""
    watched.refusals_expected = True
    with serving(Runners().build, bundles=write_bundles(tmp_path, "copy"), requests_per_minute=60) as url:
        page = open_page(url)
        page.route("**/v1/translate/stream", refuse_once())
        page.get_by_role("combobox", name="From", exact=True).select_option("pt")
        page.get_by_label("Text to translate").fill(TEXT)
        expect(page.get_by_role("alert").first).to_contain_text("The server is busy")
        expect(output(page)).to_have_text(TEXT)
        expect(page.locator("#problem")).to_be_hidden()


def test_a_real_refusal_is_shown_as_one(open_page: OpenPage, watched: Watched, tmp_path: Path) -> None:
    """The server's own limit of requests, its own sentence, its own time to wait."""
    watched.refusals_expected = True
    with serving(Runners().build, bundles=write_bundles(tmp_path, "copy"), requests_per_minute=1) as url:
        page = open_page(at(url, TEXT))
        expect(output(page)).to_have_text(TEXT)
        page.get_by_role("button", name="Translate", exact=True).click()
        expect(page.get_by_role("alert").first).to_contain_text("The server is busy")
        expect(page.get_by_role("alert").first).to_contain_text("Trying again in")


def refuse_once() -> Any:
    answers = iter([True])

    def handle(route: Any) -> None:
        if not next(answers, False):
            return route.continue_()
        problem = {"title": "Too busy", "detail": "The queue is full.", "status": 429}
        route.fulfill(status=429, headers={"Retry-After": "1"}, json=problem)
        return None

    return handle


def test_a_text_that_is_too_long_is_refused_in_words(open_page: OpenPage, watched: Watched, tmp_path: Path) -> None:
    """The server's own sentence, with its own limit."""
    watched.refusals_expected = True
    with serving(Runners().build, bundles=write_bundles(tmp_path, "copy"), max_characters=20) as url:
        page = open_page(at(url, TEXT))
        expect(page.get_by_role("alert").first).to_contain_text("Too long")
        expect(page.get_by_role("alert").first).to_contain_text("at most 20")


def test_a_server_that_is_gone_is_told(open_page: OpenPage, watched: Watched, tmp_path: Path) -> None:
    """In words, with a way to try again, and without losing the text."""
    watched.refusals_expected = True
    with serving(Runners().build, bundles=write_bundles(tmp_path, "copy")) as url:
        page = open_page(at(url, TEXT))
        expect(output(page)).to_have_text(TEXT)
        page.goto("about:blank")
        page.goto(url)
        page.wait_for_selector("html[data-ready]")
    page.get_by_label("Text to translate").fill(TEXT)
    expect(page.get_by_role("alert").first).to_contain_text("cannot be reached")
    expect(page.get_by_role("button", name="Try again")).to_be_visible()
    expect(page.get_by_label("Text to translate")).to_have_value(TEXT)


def test_an_attack_stays_text(open_page: OpenPage, watched: Watched, tmp_path: Path) -> None:
    """Through the text, the fragment, a bundle's name, and what the model says of it."""
    watched.refusals_expected = True
    write_bundle(tmp_path / "pt-en", "copy", [("pt", "en")], name=ATTACK, version="<b>1</b>")
    with serving(Runners().build, bundles=tmp_path) as url:
        page = open_page(at(url, ATTACK))
        expect(output(page)).to_have_text(ATTACK)
        expect(page.locator("#models")).to_contain_text(ATTACK)
        expect(page.get_by_role("group", name="Timings")).to_contain_text("<b>1</b>")
        page.goto(f"{url}/#/explain?from={quote(ATTACK)}&to={quote(ATTACK)}&segment={quote(ATTACK)}&text=x")
        expect(page.get_by_role("alert").first).to_be_visible()
        page.goto(f"{url}/#/{quote(ATTACK)}?text={quote(ATTACK)}")
        expect(page.get_by_label("Text to translate")).to_have_value(ATTACK)
        assert page.evaluate("window.hacked") is None
        assert page.locator("main img, main script, footer img").count() == 0


def test_the_page_forbids_what_it_does_not_need(open_page: OpenPage, url: str, watched: Watched) -> None:
    """Scripts, styles, images and connections from here, nothing else, and no HTML out of strings."""
    page = open_page(url)
    policy = page.request.get(url).headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "require-trusted-types-for 'script'" in policy
    blocked = page.evaluate(
        "() => { try { document.body.innerHTML = '<i>x</i>'; return false } catch { return true } }"
    )
    assert blocked
    assert "TrustedHTML" in watched.problems.pop()
