"""Explain and Learn in a real browser, on a tiny model that was really exported."""

from typing import Any
from urllib.parse import quote

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.playground.conftest import OpenPage

TEXT = "A porta do jardim ficou aberta."


def explain(url: str, **body: Any) -> dict[str, Any]:
    asked = {"text": TEXT, "source": "pt", "target": "en", "self_attention": True, **body}
    return httpx.post(f"{url}/v1/explain", json=asked).json()


def open_explain(open_page: OpenPage, url: str) -> Page:
    page = open_page(f"{url}/#/explain?from=pt&to=en&text={quote(TEXT)}")
    expect(page.get_by_role("heading", name="Tokens")).to_be_visible()
    return page


def weights(page: Page, side: str) -> list[float]:
    chips = page.get_by_role("group", name=side, exact=True).get_by_role("button")
    return [float(weight or 0) for weight in chips.evaluate_all("chips => chips.map(chip => chip.dataset.weight)")]


def test_a_click_on_a_translation_explains_it(open_page: OpenPage, model_url: str) -> None:
    """From what it says to why, in one click; tokens of both sides are there."""
    page = open_page(f"{model_url}/#/translate?from=pt&to=en&text={quote(TEXT)}")
    page.locator("#output a[href]").first.click()
    answer = explain(model_url, beam_size=4)
    for side, tokens in (("Portuguese", answer["source_tokens"]), ("English", answer["target_tokens"])):
        chips = page.get_by_role("group", name=side, exact=True).get_by_role("button")
        expect(chips).to_have_count(len(tokens))
        assert chips.all_inner_texts() == [token["text"].replace("▁", "·") for token in tokens]


def test_pointing_at_a_token_lights_up_what_it_looked_at(open_page: OpenPage, model_url: str) -> None:
    """The shades are the model's: the mean of all heads, then the one that was chosen."""
    page, answer = open_explain(open_page, model_url), explain(model_url, beam_size=4)
    maps = answer["cross_attention"]
    page.get_by_role("group", name="English", exact=True).get_by_role("button").nth(1).hover()
    heads = [head[1] for layer in maps for head in layer]
    mean = [sum(column) / len(heads) for column in zip(*heads, strict=True)]
    assert weights(page, "Portuguese") == pytest.approx(mean, abs=1e-4)
    page.get_by_role("button", name="Layer 2, head 1").click()
    assert weights(page, "Portuguese") == pytest.approx(maps[1][0][1], abs=1e-4)
    expect(page.get_by_role("button", name="Layer 2, head 1")).to_have_attribute("aria-pressed", "true")


def test_a_token_can_be_reached_by_keyboard(open_page: OpenPage, model_url: str) -> None:
    """Focus does what pointing does."""
    page = open_explain(open_page, model_url)
    page.get_by_role("group", name="English", exact=True).get_by_role("button").first.focus()
    page.keyboard.press("Tab")
    assert sum(weights(page, "Portuguese")) == pytest.approx(1, abs=1e-3)
    expect(page.locator(".readout").first).to_contain_text("looks at")


def test_the_encoder_shows_what_words_look_at(open_page: OpenPage, model_url: str) -> None:
    """The question of the tomatoes: what does *they* look at? All heads of all layers are there to see."""
    page, answer = open_explain(open_page, model_url), explain(model_url, beam_size=4)
    page.get_by_role("button", name="Source → source").click()
    shape = answer["architecture"]
    expect(page.locator(".heads .layer button")).to_have_count(shape["encoder_layers"] * shape["num_heads"])
    page.get_by_role("group", name="Portuguese", exact=True).get_by_role("button").nth(2).hover()
    page.get_by_role("button", name="Layer 1, head 2").click()
    assert weights(page, "Portuguese") == pytest.approx(answer["encoder_attention"][0][1][2], abs=1e-4)


def test_choices_and_the_tree_are_the_searchs(open_page: OpenPage, model_url: str) -> None:
    """Runners-up with their chances, and a tree whose leaves are the n-best list; it grows step by step."""
    page, answer = open_explain(open_page, model_url), explain(model_url, beam_size=4)
    expect(page.locator(".choices li")).to_have_count(6)
    leaves = page.locator(".tree .done")
    expect(leaves).to_have_count(len(answer["hypotheses"]))
    listed = page.locator("#explain-body .alternatives li")
    for place, hypothesis in enumerate(answer["hypotheses"]):
        expect(listed.nth(place)).to_contain_text(f"{hypothesis['score']:.4f}")
    nodes = page.locator(".tree g:not(.later)")
    grown = nodes.count()
    page.get_by_label("Step of the search").fill("1")
    first = [node for node in answer["beam"]["nodes"] if node["step"] == 1 and node["state"] != "cut"]
    expect(nodes).to_have_count(len(first))
    assert len(first) < grown


def test_learn_shows_the_models_numbers(open_page: OpenPage, model_url: str) -> None:
    """Written on the page as the model computed them, for the chosen token, layer and head."""
    page = open_page(f"{model_url}/#/learn")
    page.get_by_label("Sentence", exact=True).fill(TEXT)
    page.get_by_role("button", name="Walk through it").click()
    numbers = explain(model_url, numbers={"encoder_layer": 1, "head": 1})["numbers"]
    section = page.locator(".step")
    expect(section).to_have_count(7)
    page.get_by_role("group", name="Source token").get_by_role("button").nth(1).click()
    page.get_by_role("combobox", name="Layer", exact=True).select_option(index=1)
    page.get_by_role("combobox", name="Head", exact=True).first.select_option(index=1)
    cells = page.get_by_role("region", name="Scores of").locator("tbody tr td:last-child span")
    expect(cells.first).to_have_attribute("title", f"{numbers['encoder_attention'][1][0]!r}")
    shown = cells.evaluate_all("cells => cells.map(cell => Number(cell.title))")
    assert shown == pytest.approx(numbers["encoder_attention"][1], abs=1e-6)
    assert sum(shown) == pytest.approx(1, abs=1e-5)
    query = page.locator("[data-vector=query]").first.locator(".values span")
    titles = query.evaluate_all("all => all.map(one => Number(one.title))")
    assert titles == pytest.approx(numbers["encoder_query"][1][:6], abs=1e-6)
