"""`POST /v1/explain` over the whole service, on a tiny model that was really exported."""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from dragoman.service.app import create_app
from dragoman.service.assembly import build_parts
from dragoman.service.bundles.manifest import Bundle, Precision
from dragoman.service.engine.explainer import Explainer
from dragoman.service.engine.job import DecodingOptions, DecodingRules
from dragoman.service.settings import Settings
from tests.api.rooms import Runners, write_bundles
from tests.bundles.fakes import sentences
from tests.engine.reverse_runner import EOS, FakeRunner, dream

PAIR = {"source": "pt", "target": "en"}
# int8: the open attention may round one activation the other way, which moves a log-probability a little.
DIFFERENCES = {"int8": 0.1, "fp32": 1e-4}
TEXTS = [portuguese for portuguese, _ in sentences()[:60:5]]


@pytest.fixture(params=["int8", "fp32"])
async def client(
    request: pytest.FixtureRequest, tiny_bundle: Bundle, tiny_float_bundles: dict[Precision, Bundle]
) -> AsyncIterator[httpx.AsyncClient]:
    bundle = tiny_bundle if request.param == "int8" else tiny_float_bundles[request.param]
    async with open_client(Settings(bundles=bundle.path, watch=False, threads=1, max_rows=16)) as found:
        yield found


@asynccontextmanager
async def open_client(settings: Settings, build: Any = build_parts) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(settings, build=build)
    transport = httpx.ASGITransport(app=app)
    async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport, base_url="http://t") as client:
        yield client


async def ask(client: httpx.AsyncClient, path: str, **body: Any) -> dict[str, Any]:
    response = await client.post(path, json={**PAIR, **body})
    assert response.status_code == 200, response.text
    return response.json()


async def test_explained_tokens_are_the_translated_ones(client: httpx.AsyncClient) -> None:
    """An explanation of something else than what was said would be worse than none."""
    for text in TEXTS:
        translated = await ask(client, "/v1/translate", text=text, log_probs=True)
        explained = await ask(client, "/v1/explain", text=text)
        segment = translated["translations"][0]["segments"][0]
        assert explained["text"] == segment["text"]
        assert explained["finish_reason"] == segment["finish_reason"]
        assert [token["text"] for token in explained["target_tokens"]] == [t["token"] for t in segment["log_probs"]]
        decoded = [token["log_prob"] for token in segment["log_probs"]]
        assert [token["log_prob"] for token in explained["target_tokens"]] == pytest.approx(decoded, abs=1e-6)


async def test_the_graph_agrees_with_the_decoder(client: httpx.AsyncClient) -> None:
    """Token by token the explain graph, too, would have chosen as greedy decoding did, as surely as it did."""
    for text in TEXTS:
        explained = await ask(client, "/v1/explain", text=text)
        assert explained["consistency"]["largest_difference"] < DIFFERENCES[explained["precision"]]
        assert explained["consistency"]["same_choices"]
        for token in explained["target_tokens"]:
            assert token["choices"][0]["id"] == token["id"]
            assert len(token["choices"]) == 6
            log_probs = [choice["log_prob"] for choice in token["choices"]]
            assert log_probs == sorted(log_probs, reverse=True)


async def test_rows_sum_to_one_on_the_wire(client: httpx.AsyncClient) -> None:
    """Also after rounding for JSON."""
    explained = await ask(client, "/v1/explain", text=TEXTS[0], self_attention=True)
    num_source, num_target = len(explained["source_tokens"]), len(explained["target_tokens"])
    shape = explained["architecture"]
    for name, layers, rows, columns in (
        ("cross_attention", shape["decoder_layers"], num_target, num_source),
        ("encoder_attention", shape["encoder_layers"], num_source, num_source),
        ("decoder_attention", shape["decoder_layers"], num_target, num_target),
    ):
        attention = np.array(explained[name])
        assert attention.shape == (layers, shape["num_heads"], rows, columns)
        assert np.abs(attention.sum(-1) - 1).max() < 1e-3


async def test_leaves_of_the_tree_are_the_n_best_list(client: httpx.AsyncClient) -> None:
    """The tree is the search that made the list, not a picture like it."""
    for text in TEXTS[:6]:
        asked = {"text": text, "beam_size": 4}
        translated = await ask(client, "/v1/translate", **asked, n_best=4)
        segment = translated["translations"][0]["segments"][0]
        explained = await ask(client, "/v1/explain", **asked)
        expected = [(segment["text"], segment["score"])]
        expected += [(other["text"], other["score"]) for other in segment["alternatives"]]
        assert [(each["text"], each["score"]) for each in explained["hypotheses"]] == expected
        leaves = tree_leaves(explained["beam"]["nodes"])
        assert sorted(rank for rank, _, _ in leaves) == list(range(len(expected)))
        for rank, tokens, total in leaves:
            assert len(tokens) <= explained["beam"]["num_steps"]
            num_tokens = len(tokens)
            assert total / ((5 + num_tokens) / 6) ** 0.6 == pytest.approx(expected[rank][1], abs=1e-6)


def tree_leaves(nodes: list[dict[str, Any]]) -> list[tuple[int, list[str], float]]:
    """(rank, tokens from the root, sum) of every node where a hypothesis ends; also that parents come before."""
    found = []
    for place, node in enumerate(nodes):
        assert node["parent"] is None or node["parent"] < place
        if node["hypothesis"] is None:
            continue
        tokens, at = [], node
        while at["parent"] is not None:
            tokens.insert(0, at["token"])
            at = nodes[at["parent"]]
        found.append((node["hypothesis"], tokens, node["total"]))
    return found


def test_a_tree_of_a_wild_search_holds_together() -> None:
    """Made-up probabilities branch, reorder and end at odd moments; every hypothesis must still be a path."""
    for seed in range(30):
        source = (5 + seed % 7, 6, 7 + seed // 7, EOS)
        explainer = Explainer(None, lambda rows: FakeRunner(dream(), rows), DecodingRules(max_new_tokens=20))  # type: ignore[arg-type]
        tree = explainer.beam_tree(source, DecodingOptions(beam_size=3))
        ends = {node.hypothesis: node for node in tree.nodes if node.hypothesis is not None}
        assert sorted(ends) == list(range(len(tree.hypotheses)))
        for rank, node in ends.items():
            ids = []
            total = node.total
            while node.parent is not None:
                ids.insert(0, node.token)
                node = tree.nodes[node.parent]
            hypothesis = tree.hypotheses[rank]
            assert tuple(token for token in ids if token != EOS) == hypothesis.ids
            assert total == pytest.approx(sum(hypothesis.log_probs), abs=1e-5)


async def test_numbers_are_of_the_asked_layer_and_head(client: httpx.AsyncClient) -> None:
    """The page's select boxes choose what they say."""
    whole = await ask(client, "/v1/explain", text=TEXTS[0], self_attention=True)
    numbers = {"encoder_layer": 1, "decoder_layer": 1, "head": 1}
    explained = await ask(client, "/v1/explain", text=TEXTS[0], numbers=numbers)
    assert np.allclose(explained["numbers"]["encoder_attention"], whole["encoder_attention"][1][1], atol=1e-5)
    assert np.allclose(explained["numbers"]["cross_attention"], whole["cross_attention"][1][1], atol=1e-5)


async def test_the_beam_that_a_bundle_recommends_is_explained(tiny_bundle: Bundle, tmp_path: Path) -> None:
    """Who names no beam gets the same one from both routes, or the explanation would be of another translation."""
    shutil.copytree(tiny_bundle.path, tmp_path / "pt-en")
    manifest = tmp_path / "pt-en" / "bundle.json"
    told = json.loads(manifest.read_text("utf-8"))
    told["rules"]["default_beam_size"] = 3
    manifest.write_text(json.dumps(told), "utf-8")
    async with open_client(Settings(bundles=tmp_path, watch=False, threads=1, max_rows=8)) as client:
        for text in TEXTS[:4]:
            translated = await ask(client, "/v1/translate", text=text)
            explained = await ask(client, "/v1/explain", text=text)
            assert explained["text"] == translated["translations"][0]["segments"][0]["text"]
            assert explained["beam"] is not None
            assert (await ask(client, "/v1/explain", text=text, beam_size=1))["beam"] is None


async def test_a_segment_of_a_text_is_explained_as_it_was_translated(client: httpx.AsyncClient) -> None:
    """A click on the second sentence explains the second sentence."""
    text = f"{TEXTS[1]} {TEXTS[2]}"
    segments = (await ask(client, "/v1/translate", text=text))["translations"][0]["segments"]
    explained = await ask(client, "/v1/explain", text=text, segment=1)
    assert explained["num_segments"] == len(segments) == 2
    assert (explained["source"], explained["text"]) == (segments[1]["source"], segments[1]["text"])


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"text": "Olá.", "segment": 3}, 422),
        ({"text": "12345"}, 422),
        ({"text": ""}, 422),
        ({"text": "Olá.", "beam_size": 99}, 422),
        ({"text": "Olá.", "numbers": {"head": 99}}, 422),
        ({"text": "Olá.", "target": "de"}, 404),
        ({"text": "qxk" * 24, "numbers": {}}, 413),  # letters that never meet: a token each
        ({"text": "Olá.", "typo": 1}, 422),
    ],
)
async def test_what_cannot_be_explained_is_refused(tiny_bundle: Bundle, body: dict[str, Any], status: int) -> None:
    """One sentence that says what to do, before any work is done."""
    async with open_client(Settings(bundles=tiny_bundle.path, watch=False, threads=1, max_rows=8)) as client:
        response = await client.post("/v1/explain", json={**PAIR, **body})
    assert response.status_code == status
    assert response.json()["detail"]


async def test_a_bundle_without_the_graph_still_translates(tmp_path: Path) -> None:
    """Explaining is optional in the format."""
    settings = Settings(bundles=write_bundles(tmp_path / "bundles"), watch=False)
    async with open_client(settings, Runners().build) as client:
        response = await client.post("/v1/explain", json={**PAIR, "text": "O gato dorme."})
        assert (await ask(client, "/v1/translate", text="O gato dorme."))["translations"]
    assert response.status_code == 404
    assert "explain graph" in response.json()["detail"]


async def test_explaining_waits_its_turn_and_refuses_a_crowd(tiny_bundle: Bundle) -> None:
    """Looking must not take the server from those who translate."""
    async with open_client(Settings(bundles=tiny_bundle.path, watch=False, threads=1, max_rows=64)) as client:
        asked = [client.post("/v1/explain", json={**PAIR, "text": text, "beam_size": 4}) for text in TEXTS * 3]
        statuses = {response.status_code for response in await asyncio.gather(*asked)}
        assert (await ask(client, "/v1/translate", text=TEXTS[0]))["translations"]
    assert statuses <= {200, 429}
    assert 200 in statuses
