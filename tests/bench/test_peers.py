"""The peers translate the same weights: in floating point token for token, or a comparison of speeds means nothing."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from bench import models
from bench.harness import alternate
from bench.models import Subject, random_subject
from bench.peers.ctranslate2 import CTranslate2
from bench.peers.huggingface import HuggingFace, convert
from bench.peers.ort_concat import OrtConcat
from bench.peers.ours import Ours
from bench.peers.peer import Ids, Peer, agreement, encode, fastest, in_batches, translate, work
from bench.peers.torch_eager import TorchEager
from bench.texts import long_ones, of_length, sentences
from dragoman.model.evaluate import greedy
from dragoman.model.saved import SavedModel, save_model
from dragoman.model.tokenizer import Tokenizer
from dragoman.service.bundles.manifest import Bundle, Limits, Pair
from tests.conftest import tiny_config

TOKENS = 20


@pytest.fixture(scope="module")
def sources(tiny_saved: SavedModel) -> list[Ids]:
    """Of several lengths, so that batches are padded."""
    texts = [text for text in sentences(None, 40) if len(text) < 60][:10]
    return encode(tiny_saved.tokenizer, texts)


@pytest.fixture(scope="module")
def reference(tiny_saved: SavedModel, sources: list[Ids]) -> list[Ids]:
    """One sentence at a time: nothing padded."""
    return [greedy(tiny_saved.network, [ids], [TOKENS])[0].ids for ids in sources]


@pytest.fixture(scope="module", params=["torch", "huggingface", "ctranslate2", "onnxruntime"])
def float_peer(
    request: pytest.FixtureRequest, tiny_saved: SavedModel, tmp_path_factory: pytest.TempPathFactory
) -> Peer:
    folder = tmp_path_factory.mktemp("peer")
    match request.param:
        case "torch":
            return TorchEager(tiny_saved.network, 4, TOKENS)
        case "huggingface":
            return HuggingFace(convert(tiny_saved), 4, TOKENS)
        case "ctranslate2":
            return CTranslate2(tiny_saved, folder, "float32", 4, max_tokens=TOKENS)
        case _:
            return OrtConcat(tiny_saved.network, folder, "fp32", 4, TOKENS)


def test_a_float_peer_is_the_network(float_peer: Peer, sources: list[Ids], reference: list[Ids]) -> None:
    """Conversions are easy to get almost right: positions, scales, norms, a start token."""
    assert float_peer.translate_ids(sources, 1) == reference


def test_ours_in_floating_point_is_the_network(
    tiny_float_bundles: dict[str, Bundle], sources: list[Ids], reference: list[Ids]
) -> None:
    """The engine that is measured is the one that serves."""
    assert Ours(tiny_float_bundles["fp32"], 4, max_tokens=TOKENS).translate_ids(sources, 1) == reference


def test_two_loops_translate_as_one(tiny_bundle: Bundle, sources: list[Ids]) -> None:
    """What two cores compute is not allowed to differ from what one computes."""
    two = Ours(tiny_bundle, 4, loops=2, max_tokens=TOKENS)
    assert two.translate_ids(sources, 1) == Ours(tiny_bundle, 4, max_tokens=TOKENS).translate_ids(sources, 1)
    two.close()


@pytest.mark.parametrize("beam_size", [1, 4])
def test_int8_peers_answer_every_sentence(
    tiny_saved: SavedModel, tiny_bundle: Bundle, sources: list[Ids], beam_size: int, tmp_path: Path
) -> None:
    """Roundings differ, but nobody is fast by leaving sentences out."""
    peers: list[Peer] = [
        Ours(tiny_bundle, 8, max_tokens=TOKENS),
        CTranslate2(tiny_saved, tmp_path, "int8", 4, max_tokens=TOKENS),
    ]
    for peer in peers:
        found = peer.translate_ids(sources, beam_size)
        assert len(found) == len(sources)
        assert all(0 < len(ids) <= TOKENS for ids in found), peer.name


def test_converting_leaves_the_weights_alone(tiny_saved: SavedModel, tmp_path: Path) -> None:
    """CTranslate2 quantizes in place; the next peer must not get its leftovers."""
    before = tiny_saved.network.embedding.weight.clone()
    CTranslate2(tiny_saved, tmp_path, "int8")
    assert before.equal(tiny_saved.network.embedding.weight)


def test_batches_hold_every_sentence_once() -> None:
    """Longest first, like lengths together."""
    batches = list(in_batches([[1], [1, 2, 3], [1, 2], [1, 2, 3, 4]], 3))
    assert batches == [[3, 1, 2], [0]]


def test_the_fastest_is_measured_not_assumed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sweep gives every peer its best setting; the first run of each does not count."""

    class Named:
        def __init__(self, name: str) -> None:
            self.name = name

        def translate_ids(self, sources: Sequence[Ids], beam_size: int) -> list[Ids]:
            return list(sources)

    seconds = iter([3.0, 2.0, 1.0, 9.0, 5.0, 4.0])
    monkeypatch.setattr("bench.peers.peer.cpu_seconds", lambda job: next(seconds))
    candidates = [Named("slow"), Named("fast"), Named("slower")]
    assert fastest(candidates, lambda peer: lambda: peer.translate_ids([], 1), runs=2).name == "fast"


def test_text_goes_in_and_comes_out(tiny_saved: SavedModel, tiny_bundle: Bundle) -> None:
    """Tokenization is counted for everyone, so it has to be done for everyone."""
    ours = Ours(tiny_bundle, 4, max_tokens=TOKENS)
    found = translate(ours, tiny_saved.tokenizer, ["Bom dia!", "Até amanhã."], 1)
    assert len(found) == 2
    assert all(isinstance(text, str) for text in found)
    assert alternate({"ours": work(ours, tiny_saved.tokenizer, ["Bom dia!"], 1)}, runs=1)["ours"][0] > 0


def test_agreement_is_a_share() -> None:
    """Half the sentences alike is one half."""
    assert agreement([[1], [2, 3]], [[1], [2]]) == 0.5


def test_a_random_model_does_equal_work_everywhere(
    tiny_tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It never ends by itself: both sides generate what they may, so a rate is a rate."""
    monkeypatch.setattr("bench.models.CACHE", tmp_path)
    config = tiny_config(vocab_size=640, norm="post")
    subject = random_subject(config, tiny_tokenizer, Limits(32, 24))
    sources = encode(tiny_tokenizer, ["Bom dia!", "O gato dorme."])
    for peer in (Ours(subject.bundle, 4, max_tokens=9), CTranslate2(subject.saved, tmp_path / "ct2", max_tokens=9)):
        assert [len(ids) for ids in peer.translate_ids(sources, 1)] == [9, 9]
    assert isinstance(subject, Subject)
    assert subject.tokenizer.decode([639])  # an id that the tokenizer does not have
    before = (subject.bundle.path / "weights.bin").stat().st_mtime_ns
    again = random_subject(config, tiny_tokenizer, Limits(32, 24))
    assert (again.bundle.path / "weights.bin").stat().st_mtime_ns == before  # kept, not made again


@pytest.mark.parametrize("tokens", [5, 20, 60])
def test_sentences_of_a_length_have_it(tiny_tokenizer: Tokenizer, tokens: int) -> None:
    """Latency is told per length."""
    found = of_length(tiny_tokenizer, sentences(None, 300), tokens, 6)
    assert [len(tiny_tokenizer.encode(text)) for text in found] == [tokens] * 6


def test_long_sentences_are_long(tiny_tokenizer: Tokenizer) -> None:
    """And not too long for the model."""
    found = long_ones(tiny_tokenizer, sentences(None, 300), 20)
    assert len(found) == 20
    assert all(40 <= len(tiny_tokenizer.encode(text)) <= 80 for text in found)


def test_a_model_of_several_directions_is_told_which(
    tmp_path: Path, tiny_saved: SavedModel, tiny_bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its tag it would be measured on a task that it never learned."""
    save_model(tmp_path / "m.safetensors", tiny_saved)
    tagged = replace(tiny_bundle, pairs=(Pair("pt", "en", (5,)),))
    monkeypatch.setattr(models, "read_bundle", lambda path: tagged)
    tokenizer = models.shipped(tmp_path / "m.safetensors", tmp_path).tokenizer
    plain = encode(tiny_saved.tokenizer, ["O gato dorme.", "Bom dia!"])
    assert encode(tokenizer, ["O gato dorme.", "Bom dia!"]) == [[5, *ids] for ids in plain]
    assert encode(tokenizer, ["Bom dia!"]) == [[5, *plain[1]]]
