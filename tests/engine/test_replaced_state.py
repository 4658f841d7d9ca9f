"""State that every step replaces: rows join, move, pause and leave, and each goes on with its own value."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dragoman.service.engine.job import DecodingOptions, DecodingRules, Job
from dragoman.service.engine.loop import Engine
from dragoman.service.engine.runner import OrtRunner
from dragoman.service.engine.sessions import OrtSessions
from tests.engine.crowds import play
from tests.engine.reference_search import translate
from tests.engine.reverse_runner import BOS, EOS, best
from tests.engine.running_sum import LIMITS, log_probs, write_bundle

Where = Literal["host", "device"]
Opened = tuple[OrtSessions, Where]


@pytest.fixture(scope="module", params=["host", "device"])
def opened(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Opened:
    return OrtSessions(write_bundle(tmp_path_factory.mktemp("sum"), request.param)), request.param


def sources_of(count: int, seed: int = 0) -> list[tuple[int, ...]]:
    rng = np.random.default_rng(seed)
    return [(*rng.integers(4, 16, rng.integers(1, 12)).tolist(), EOS) for _ in range(count)]


def check(runner: OrtRunner, rows: list[tuple[tuple[int, ...], list[int]]], stepping: int, k: int = 3) -> None:
    """One step of the first rows gives what the plain loop gives; each goes on with its second-best token."""
    tokens = np.array([prefix[-1] if prefix else BOS for _, prefix in rows[:stepping]])
    found = runner.step(tokens, k)
    for row, (source, prefix) in enumerate(rows[:stepping]):
        scores = log_probs(source, tuple(prefix))
        np.testing.assert_array_equal(found.ids[row], best(scores, k))
        np.testing.assert_array_equal(found.log_probs[row], scores[best(scores, k)])
        prefix.append(int(found.ids[row, 1]))


def test_rows_join_move_pause_and_leave(opened: Opened) -> None:
    """A row that joins begins at zero where another has been; a row that pauses keeps its value."""
    sessions, where = opened
    sources, runner = sources_of(9), OrtRunner(sessions, 6, where)
    rows: list[tuple[tuple[int, ...], list[int]]] = [(source, []) for source in sources[:4]]
    runner.add(sources[:4], range(4))
    for stepping in (4, 2, 1, 4, 3):
        check(runner, rows, stepping)
    runner.keep(np.array([0, 3]))  # two leave, and the last takes a free slot
    rows = [rows[0], rows[3]]
    check(runner, rows, 2)
    runner.keep(np.array([1, 0]))  # two trade places
    rows.reverse()
    for stepping in (1, 1, 2):
        check(runner, rows, stepping)
    runner.add(sources[4:7], [3, 0, 2])  # not side by side, and in the place of one that ended
    rows = [(sources[5], []), rows[1], (sources[6], []), (sources[4], [])]
    for _ in range(3):
        check(runner, rows, 4)
    runner.keep(np.array([1, 1, 1, 3, 0]))  # a beam opens
    rows = [(rows[parent][0], list(rows[parent][1])) for parent in (1, 1, 1, 3, 0)]
    rows[1][1][-1], rows[2][1][-1] = 9, 11  # and its rows go on with other tokens
    for _ in range(3):
        check(runner, rows, 5)


def test_steps_in_one_call_are_the_same_steps(opened: Opened) -> None:
    """Without a multi-step graph a row alone, and several, take one step after the other."""
    sessions, where = opened
    for count in (1, 3):
        sources, runner = sources_of(count, seed=count), OrtRunner(sessions, 4, where)
        runner.add(sources, range(count))
        steps = runner.multi_step(np.full(count, BOS), 12, -1, lambda steps: True)
        for row, source in enumerate(sources):
            prefix: tuple[int, ...] = ()
            for token, log_prob in zip(steps.ids[:, row], steps.log_probs[:, row], strict=True):
                scores = log_probs(source, prefix)
                assert (token, log_prob) == (best(scores, 1)[0], scores.max())
                prefix += (int(token),)


@st.composite
def guests(draw: st.DrawFn) -> tuple[tuple[int, ...], DecodingOptions, int]:
    """A source, options, and the turn at which it comes."""
    beam_size = draw(st.sampled_from([1, 1, 2, 4]))
    options = DecodingOptions(
        beam_size=beam_size,
        n_best=draw(st.integers(1, beam_size)),
        max_new_tokens=draw(st.none() | st.integers(4, LIMITS.max_new_tokens)),
        prefix_ids=tuple(draw(st.lists(st.integers(4, 15), max_size=3))),
        log_probs=True,
    )
    return (*draw(st.lists(st.integers(4, 15), min_size=1, max_size=11)), EOS), options, draw(st.integers(0, 20))


@given(crowd=st.lists(guests(), min_size=1, max_size=12))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_job_equals_the_plain_loop_alone_and_in_a_crowd(opened: Opened, crowd: list) -> None:
    """Greedy, beams and prefixes, through the engine: the network knows only its sum and the source."""
    sessions, where = opened
    rules = DecodingRules.of(sessions.bundle)
    expected = [translate(log_probs, rules, source, options) for source, options, _ in crowd]
    engine = Engine([OrtRunner(sessions, 8, where)], rules)
    together = play(engine, [(Job(source, options), turn) for source, options, turn in crowd])
    alone = [play(engine, [(Job(source, options), 0)])[0] for source, options, _ in crowd]
    for results in (together, alone):
        for result, (answers, reason) in zip(results, expected, strict=True):
            assert [(each.ids, each.score, each.log_probs) for each in result.hypotheses] == answers
            assert result.finish_reason is reason
