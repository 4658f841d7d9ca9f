"""The search by hand: a few steps whose outcome can be worked out on paper."""

from __future__ import annotations

import numpy as np
import pytest

from dragoman.service.engine.job import DecodingOptions, DecodingRules, FinishReason, Job
from dragoman.service.engine.seams import Candidates
from dragoman.service.engine.search import Advance, FinishedJob, Search
from tests.engine.reverse_runner import BOS, EOS

RULES = DecodingRules(max_new_tokens=20)


def candidates(*rows: dict[int, float], wanted: list[float] | None = None) -> Candidates:
    """One dictionary per row: token -> log-probability, best first."""
    ids = np.array([list(row) for row in rows])
    log_probs = np.array([list(row.values()) for row in rows], np.float32)
    return Candidates(ids, log_probs, None if wanted is None else np.array(wanted, np.float32))


def search_of(*jobs: Job, rules: DecodingRules = RULES) -> Search:
    search = Search(rules, max_rows=8)
    search.add(jobs)
    return search


def job(**options: object) -> Job:
    return Job([4, EOS], DecodingOptions(**options))


def settled(search: Search, num_joining: int = 0) -> list[int] | None:
    """What the runner is told before the next step."""
    parents = search.settle(num_joining)
    return None if parents is None else parents.tolist()


def only(advance: Advance) -> FinishedJob:
    (finished,) = advance.finished
    return finished


def test_a_new_row_starts_from_bos_and_goes_on_with_what_it_chose() -> None:
    """The runner is told the token, never asked to remember it."""
    search = search_of(job(), job())
    assert search.ask().next_ids.tolist() == [BOS, BOS]
    assert search.ask().k == 1
    search.advance(candidates({7: -0.1}, {8: -0.2}))
    assert settled(search) is None
    assert search.ask().next_ids.tolist() == [7, 8]


def test_holes_are_filled_from_the_tail_and_all_others_stay() -> None:
    """Moving a row costs; not moving it is free."""
    search = search_of(*[job() for _ in range(5)])
    going = {7: -0.1}
    search.advance(candidates(going, {EOS: -0.1}, going, {EOS: -0.1}, going))
    assert settled(search) == [0, 4, 2]
    search.advance(candidates(going, going, {EOS: -0.1}))
    assert settled(search) == [0, 1], "the last row leaves no hole"


def test_who_joins_takes_the_place_of_who_left() -> None:
    """Then nobody moves; what is left over is closed from the tail, or joins at the end."""
    search = search_of(*[job() for _ in range(5)])
    going, ends = {7: -0.1}, {EOS: -0.1}
    search.advance(candidates(going, ends, going, ends, going))
    assert settled(search, num_joining=2) is None
    assert search.add([job(), job()]) == [1, 3]
    assert search.ask().next_ids.tolist() == [7, BOS, 7, BOS, 7]
    search.advance(candidates(ends, ends, going, ends, going))
    assert settled(search, num_joining=1) == [4, 1, 2]
    assert search.add([job()]) == [1]
    search.advance(candidates(going, ends, going))
    assert settled(search, num_joining=2) is None
    assert search.add([job(), job()]) == [1, 3]
    assert search.num_rows == 4


def test_a_score_is_the_sum_over_the_penalty_of_the_paper() -> None:
    """lp(n) = ((5 + n) / 6) ** alpha, eos counted."""
    search = search_of(job(log_probs=True))
    search.advance(candidates({7: -0.5}))
    outcome = only(search.advance(candidates({EOS: -0.25})))
    assert outcome.hypotheses[0].ids == (7,)
    assert outcome.hypotheses[0].log_probs == (-0.5, -0.25)
    assert outcome.hypotheses[0].score == -0.75 / (7 / 6) ** 0.6
    assert (outcome.num_tokens, outcome.num_steps) == (2, 2)


@pytest.mark.parametrize(
    ("normalization", "length_penalty", "penalty"),
    [("gnmt", 1.0, 7 / 6), ("gnmt", 0.0, 1.0), ("length", 1.0, 2.0), ("length", 0.5, 2**0.5), ("none", None, 1.0)],
)
def test_the_penalty_is_the_bundles_kind_with_the_requests_strength(
    normalization: str, length_penalty: float | None, penalty: float
) -> None:
    """An imported model decodes as its own framework does."""
    rules = DecodingRules(normalization=normalization, max_new_tokens=20)
    search = search_of(job(length_penalty=length_penalty), rules=rules)
    search.advance(candidates({7: -0.5}))
    outcome = only(search.advance(candidates({EOS: -0.25})))
    assert outcome.hypotheses[0].score == pytest.approx(-0.75 / penalty)


def test_a_beam_opens_from_one_row_and_keeps_the_first_child_in_place() -> None:
    """Two children of one parent: one stays, one is copied."""
    search = search_of(job(beam_size=2))
    assert search.ask().k == 3  # two that go on, and one that ends
    search.advance(candidates({7: -0.5, 8: -1.0, 9: -2.0}))
    assert settled(search) == [0, 0]
    assert search.ask().next_ids.tolist() == [7, 8]


def test_a_beam_finds_what_greedy_search_misses() -> None:
    """The better sentence begins with the worse word."""
    search = search_of(job(beam_size=2, n_best=2))
    search.advance(candidates({7: -0.5, 8: -1.0, 9: -5.0, 10: -6.0}))
    search.settle(0)
    dull = {9: -2.0, 10: -2.5, EOS: -3.0, 11: -4.0}
    bright = {EOS: -0.1, 9: -4.0, 10: -5.0, 11: -6.0}
    advance = search.advance(candidates(dull, bright))
    assert advance.finished == []
    # One hypothesis has ended: the live ones both descend from the first row, the best of them in its place.
    assert settled(search) == [0, 0]
    outcome = only(search.advance(candidates({EOS: -0.1, 9: -5.0, 11: -6.0, 12: -7.0}, dull)))
    assert [hypothesis.ids for hypothesis in outcome.hypotheses] == [(8,), (7, 9)]
    assert outcome.reason is FinishReason.EOS
    assert search.num_rows == 0


def test_eos_beyond_the_width_of_the_beam_is_dropped() -> None:
    """Only a candidate among the best `beam_size` may end a sentence."""
    search = search_of(job(beam_size=2))
    search.advance(candidates({7: -0.1, 8: -0.2, EOS: -0.3, 9: -0.4}))
    (active,) = search.active.values()
    assert active.ended == []
    assert search.num_rows == 2


def test_equal_sums_go_to_the_earlier_beam_and_the_lower_rank() -> None:
    """Ties have an order that no neighbour can change."""
    search = search_of(job(beam_size=2))
    search.advance(candidates({7: -1.0, 8: -1.0, 9: -1.0, 10: -1.0}))
    search.settle(0)
    assert search.ask().next_ids.tolist() == [7, 8]
    tied = {5: -1.0, 6: -1.0, 9: -1.0, 10: -1.0}
    search.advance(candidates(tied, tied))
    assert settled(search) == [0, 0]
    assert search.ask().next_ids.tolist() == [5, 6]


def test_the_bound_rule_waits_for_a_live_hypothesis_that_may_still_win() -> None:
    """Imported models may stop later than ours."""
    rules = DecodingRules(stop_rule="bound", normalization="none", max_new_tokens=20)
    search = search_of(job(beam_size=2, n_best=2), rules=rules)
    search.advance(candidates({EOS: -2.0, 7: -2.5, 8: -2.6, 9: -9.0}))
    duller = {9: -1.5, 10: -9.0, 11: -9.1, 12: -9.2}
    advance = search.advance(candidates({9: -0.6, EOS: -0.7, 10: -9.0, 11: -9.5}, duller))
    assert advance.finished == [], "two have ended, with -2 and -3.2, but one lives with -3.1"
    outcome = only(search.advance(candidates(duller, duller)))
    assert [hypothesis.score for hypothesis in outcome.hypotheses] == pytest.approx([-2.0, -3.2])


def test_a_forced_prefix_goes_through_one_row_and_is_scored() -> None:
    """The beam opens behind the prefix; what was forced counts in the score."""
    search = search_of(job(beam_size=2, prefix_ids=(11, 12), log_probs=True))
    for token, log_prob in ((11, -3.0), (12, -4.0)):
        question = search.ask()
        assert question.wanted is not None
        assert question.wanted.tolist() == [token]
        assert question.k == 1
        search.advance(candidates({7: -0.1}, wanted=[log_prob]))
        assert search.num_rows == 1
    assert search.ask().wanted is None
    search.advance(candidates({EOS: -0.5, 7: -1.0, 8: -2.0, 9: -3.0}))
    outcome = only(
        search.advance(candidates({EOS: -0.5, 7: -2.0, 8: -2.5, 9: -3.0}, {9: -3.0, 8: -4.0, 7: -5.0, 6: -6.0}))
    )
    best = outcome.hypotheses[0]
    assert (best.ids, best.log_probs) == ((11, 12), (-3.0, -4.0, -0.5))
    assert best.score == -7.5 / (8 / 6) ** 0.6


def test_a_forced_end_is_certain_and_says_that_the_length_ended_it() -> None:
    """The framework that wants it gets its eos; the reader is told the truth."""
    search = search_of(job(max_new_tokens=2, log_probs=True), rules=DecodingRules(forced_end=True, max_new_tokens=20))
    search.advance(candidates({7: -0.5}))
    outcome = only(search.advance(candidates({8: -0.5})))
    assert (outcome.hypotheses[0].ids, outcome.hypotheses[0].log_probs) == ((7,), (-0.5, 0.0))
    assert outcome.reason is FinishReason.LENGTH
    assert outcome.hypotheses[0].finished


def test_live_hypotheses_end_at_the_limit_behind_those_that_finished() -> None:
    """A complete sentence is better than a better half."""
    search = search_of(job(beam_size=2, n_best=2, max_new_tokens=2))
    search.advance(candidates({EOS: -3.0, 7: -3.1, 8: -3.2, 9: -9.0}))
    outcome = only(
        search.advance(candidates({9: -0.1, 10: -2.0, 11: -3.0, 12: -4.0}, {9: -5.0, 10: -6.0, 11: -7.0, 12: -8.0}))
    )
    assert [hypothesis.ids for hypothesis in outcome.hypotheses] == [(), (7, 9)]
    assert outcome.reason is FinishReason.EOS


def test_giving_up_a_beam_closes_the_hole_it_leaves() -> None:
    """Cancelling is one more way to keep rows."""
    leaver, stayer = job(beam_size=3), job()
    search = search_of(leaver, stayer)
    search.advance(
        candidates({7: -1.0, 8: -2.0, 9: -3.0, 10: -4.0, 11: -5.0, 12: -6.0}, dict.fromkeys(range(7, 13), -1.0))
    )
    assert [(owner is leaver, length) for owner, _, length in search.rows()] == [
        (True, 1),
        (False, 1),
        (True, 1),
        (True, 1),
    ]
    advance = search.give_up([leaver], FinishReason.CANCELLED)
    assert settled(search) == [1]
    assert only(advance).hypotheses[0].ids == (7,)
    assert [owner for owner, _, _ in search.rows()] == [stayer]


def test_a_hypothesis_says_itself_that_it_finished_and_why() -> None:
    """Each of an n-best list ended in its own way; the job's reason is that of the best alone."""
    search = search_of(job(beam_size=2, n_best=2, max_new_tokens=2))
    search.advance(candidates({EOS: -0.1, 7: -0.5, 8: -4.0}))
    outcome = only(search.advance(candidates({9: -0.1, 10: -0.2, 11: -0.3}, {9: -5.0, 10: -6.0, 11: -7.0})))
    ended = [(each.ids, each.finished, each.finish_reason, each.num_tokens) for each in outcome.hypotheses]
    assert ended == [((), True, FinishReason.EOS, 1), ((7, 9), False, FinishReason.LENGTH, 2)]
    assert outcome.reason is FinishReason.EOS


def test_a_job_that_is_given_up_says_so_in_its_hypotheses() -> None:
    """Without scores to count, nothing else would tell a whole sentence from half of one."""
    late = job()
    search = search_of(late)
    search.advance(candidates({7: -0.5}))
    (hypothesis,) = only(search.give_up([late], FinishReason.DEADLINE)).hypotheses
    assert (hypothesis.ids, hypothesis.finished, hypothesis.finish_reason) == ((7,), False, FinishReason.DEADLINE)
