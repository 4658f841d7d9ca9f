"""A check that cannot fail proves nothing: each is shown something wrong here."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from dragoman.export.plain_search import GraphDecoder, Trace
from dragoman.export.quality import verify_quality
from dragoman.export.torch_parity import verify_parity
from dragoman.export.verify import (
    GraphTranslator,
    ParallelText,
    VerificationError,
    choose_golden,
    verify_invariance,
)
from dragoman.model.evaluate import greedy
from dragoman.model.saved import SavedModel
from dragoman.model.tokenizer import EOS_ID
from dragoman.service.bundles.manifest import Bundle, Precision
from tests.conftest import random_network, tiny_config
from tests.export.test_graphs import write_graphs

SOURCES = [[300 + i, 320 + 2 * i, 310, EOS_ID] for i in range(5)]


def translator_of(bundle: Bundle, saved: SavedModel) -> GraphTranslator:
    decoder = GraphDecoder(bundle.path, bundle.state, bundle.limits)
    return GraphTranslator(decoder, saved.tokenizer, bundle.limits.max_new_tokens)


def test_parity_holds_for_the_network_that_was_exported(
    tiny_float_bundles: dict[Precision, Bundle], tiny_saved: SavedModel
) -> None:
    """The check passes where it should."""
    found = verify_parity(tiny_saved.network, translator_of(tiny_float_bundles["fp32"], tiny_saved), SOURCES)
    assert found["different"] == 0
    assert found["sentences"] == 5


def test_parity_fails_for_another_network(tiny_float_bundles: dict[Precision, Bundle], tiny_saved: SavedModel) -> None:
    """Graphs of other weights must never be published under this model's name."""
    other = random_network(tiny_config(), seed=1)
    with pytest.raises(VerificationError, match="differently"):
        verify_parity(other, translator_of(tiny_float_bundles["fp32"], tiny_saved), SOURCES)


def test_parity_forgives_a_tie_and_says_so(tiny_saved: SavedModel, tmp_path: Path) -> None:
    """Where two tokens are as good as each other, rounding decides, and neither choice is wrong."""
    ours, theirs = random_network(tiny_config()), random_network(tiny_config())
    favourite = greedy(ours, SOURCES[:1], [1])[0].ids[0]
    with torch.no_grad():  # its twin is a little worse in one network, and a little better in the other
        for network, factor in ((ours, 1 - 1e-6), (theirs, 1 + 1e-6)):
            network.embedding.weight[favourite - 1] = network.embedding.weight[favourite] * factor
    translator = GraphTranslator(write_graphs(ours, tmp_path)[0], tiny_saved.tokenizer, max_new_tokens=20)
    found = verify_parity(theirs, translator, SOURCES[:1])
    assert found["ties"] > 0
    assert found["largest_tie"] < 1e-4


class Parrot(GraphTranslator):
    """Says what it was told to say."""

    def texts(self, sources: object) -> list[str]:
        return self.lines  # type: ignore[attr-defined,no-any-return]


def parrot(translator: GraphTranslator, lines: list[str]) -> GraphTranslator:
    bird = Parrot(translator.decoder, translator.tokenizer, translator.max_new_tokens)
    object.__setattr__(bird, "lines", lines)
    return bird


def test_quality_fails_when_more_than_half_a_point_is_lost(tiny_bundle: Bundle, tiny_saved: SavedModel) -> None:
    """int8 may cost a little, never a lot."""
    lines = [f"the quick brown fox number {i} jumps over the lazy dog" for i in range(20)]
    test = ParallelText("ours", lines, lines)
    good = parrot(translator_of(tiny_bundle, tiny_saved), lines)
    worse = parrot(good, [*lines[:-1], "something else"])
    assert verify_quality(good, good, [(test, SOURCES)], 0.5)[0]["exported"]["bleu"] == 100
    with pytest.raises(VerificationError, match=r"bleu 9\d"):
        verify_quality(good, worse, [(test, SOURCES)], 0.5)


class Moody(GraphDecoder):
    """Answers differently in company, or by multi-steps."""

    def __init__(self, decoder: GraphDecoder, mood: str) -> None:
        self._decoder_of, self._mood = decoder, mood

    def greedy(self, sources: object, limits: object, k: int = 2) -> list[Trace]:
        traces = self._decoder_of.greedy(sources, limits, k)  # type: ignore[arg-type]
        if len(traces) > 1 and self._mood == "in company":
            traces[0].log_probs[0] += 1e-6
        return traces

    def alone(self, source: Sequence[int], limit: int) -> Trace:
        trace = self._decoder_of.alone(source, limit)
        if source == SOURCES[0] and self._mood == "by multi-steps":
            trace.log_probs[0] += 1e-6
        return trace


@pytest.mark.parametrize("mood", ["in company", "by multi-steps"])
def test_invariance_fails_for_one_bit(tiny_bundle: Bundle, tiny_saved: SavedModel, mood: str) -> None:
    """The first promise of the project is bitwise; almost is not enough."""
    translator = translator_of(tiny_bundle, tiny_saved)
    found = verify_invariance(translator, SOURCES, promised=True)
    assert found["different"] == 0
    assert found["rows"] > 5
    moody = replace(translator, decoder=Moody(translator.decoder, mood))
    with pytest.raises(VerificationError, match=r"1 of \d+ rows differ"):
        verify_invariance(moody, SOURCES, promised=True)
    assert verify_invariance(moody, SOURCES, promised=False)["different"] == 1


def test_golden_sentences_are_never_close_choices(tiny_bundle: Bundle, tiny_saved: SavedModel) -> None:
    """Another CPU's softmax differs in the last bits; a golden token must not hang on them."""
    translator = translator_of(tiny_bundle, tiny_saved)
    sentences = [(f"sentence {i}", [300 + i, 470 - i, EOS_ID]) for i in range(40)]
    chosen = choose_golden(translator, sentences, count=3, gap=0.05)
    assert 0 < len(chosen) <= 3
    assert all(found.trace.smallest_gap > 0.05 and found.trace.finished for found in chosen)
    assert choose_golden(translator, sentences, count=3, gap=50.0) == []
