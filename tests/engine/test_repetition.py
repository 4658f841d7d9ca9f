"""What counts as a loop."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.service.engine import repetition
from dragoman.service.engine.job import DecodingOptions, DecodingRules, FinishReason, Job
from dragoman.service.engine.loop import Engine
from tests.engine import reference_search
from tests.engine.reverse_runner import EOS, FakeRunner, LogProbs

SOURCE = (4, 5, 6, 7, EOS)


def says(*tokens: int, then: tuple[int, ...] = (EOS,)) -> LogProbs:
    """A network that says these tokens and then goes round the others for ever."""

    def log_probs(source: tuple[int, ...], prefix: tuple[int, ...]) -> np.ndarray:
        place = len(prefix)
        token = tokens[place] if place < len(tokens) else then[(place - len(tokens)) % len(then)]
        scores = np.full(32, -5.0, np.float32)
        scores[token] = -0.5
        return scores

    return log_probs


def translate(network: LogProbs, source: tuple[int, ...] = SOURCE, **options: object) -> tuple[tuple[int, ...], str]:
    engine = Engine([FakeRunner(network)], DecodingRules(max_new_tokens=100))
    job = Job(source, DecodingOptions(max_new_tokens=90, **options))
    engine.submit(job)
    while engine.turn():
        pass
    result = job.future.result(timeout=0)
    return result.hypotheses[0].ids, result.finish_reason


@pytest.mark.parametrize("cycle", [(9,), (9, 8), (9, 8, 7), (9, 8, 7, 6, 5), (9, 8, 7, 6, 5, 4, 10, 11)])
def test_a_loop_is_stopped_and_all_but_its_first_turn_taken_back(cycle: tuple[int, ...]) -> None:
    """A reader gets the sentence, not the hiccup."""
    assert translate(says(20, 21, then=cycle)) == ((20, 21, *cycle), FinishReason.REPETITION)


def test_a_cycle_longer_than_the_guard_looks_is_left_to_the_limit() -> None:
    """Long refrains are text."""
    ids, reason = translate(says(then=tuple(range(10, 20))))
    assert (len(ids), reason) == (90, FinishReason.LENGTH)


@pytest.mark.parametrize(
    "text",
    [
        (20, 9, 9, 9, 9, 21),  # very, very, very, very
        (20, *(9, 8) * 8, 21),  # ha, ha, ha
        (20, *(5,) * 20, 21),  # a number with twenty zeros
        (*(9, 8, 7, 6, 5, 4, 10, 11) * 3, 20),  # a refrain sung three times
    ],
)
def test_text_may_repeat_itself(text: tuple[int, ...]) -> None:
    """The guard stops loops, not emphasis and numbers."""
    assert translate(says(*text)) == (text, FinishReason.EOS)


def test_a_source_that_repeats_itself_allows_twice_as_much() -> None:
    """Forty laughs are translated by forty laughs."""
    laughs = (9,) * 40
    assert translate(says(*laughs), source=(*laughs, EOS)) == (laughs, FinishReason.EOS)
    assert translate(says(then=(9,)), source=(*laughs, EOS)) == ((9,), FinishReason.REPETITION)


def test_a_forced_prefix_is_never_taken_back() -> None:
    """What the caller forces, the caller gets; only the loop after it goes."""
    prefix = (9,) * 30
    ids, reason = translate(says(*prefix, then=(9,)), prefix_ids=prefix)
    assert (ids, reason) == (prefix, FinishReason.REPETITION)


def test_the_guard_can_be_switched_off() -> None:
    """A caller may want the model's own words, all of them."""
    ids, reason = translate(says(then=(9,)), repetition_guard=False)
    assert (len(ids), reason) == (90, FinishReason.LENGTH)


def test_a_bundle_can_switch_the_guard_off() -> None:
    """An imported model decodes as its own framework does."""
    engine = Engine([FakeRunner(says(then=(9,)))], DecodingRules(max_new_tokens=60, repetition_guard=False))
    job = Job(SOURCE, DecodingOptions(max_new_tokens=60))
    engine.submit(job)
    while engine.turn():
        pass
    assert job.future.result(timeout=0).finish_reason is FinishReason.LENGTH


@given(st.lists(st.integers(0, 3), max_size=40).map(tuple))
def test_the_longest_cycle_of_a_source_is_found(ids: tuple[int, ...]) -> None:
    """The counting agrees with the definition."""
    assert repetition.longest_cycle(ids) == reference_search.longest_cycle(ids)


@given(st.lists(st.integers(0, 5), max_size=60).map(tuple))
def test_sources_without_long_cycles_are_waved_through(ids: tuple[int, ...]) -> None:
    """The shortcut for ordinary sentences changes nothing."""
    cycle = reference_search.longest_cycle(ids)
    expected = [max(24, 4 * period, 2 * cycle + 1) - period for period in range(1, 9)]
    assert list(repetition.thresholds(ids)) == expected
