"""The engine's first promise: a job translates alike alone and in a crowd."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.service.engine.job import DecodingOptions, DecodingRules, FinishReason, Job
from dragoman.service.engine.loop import Engine
from dragoman.service.engine.scheduler import EngineSettings, Scheduler
from tests.clock import Clock
from tests.engine.reference_search import translate
from tests.engine.reverse_runner import EOS, FakeRunner, dream, reversal, stutter

WORDS = st.integers(4, 11)
NETWORKS = {"dream": dream(), "ties": dream(coarse=True), "stutter": stutter(), "reverse": reversal(12)}


@dataclass
class Guest:
    """A job of the crowd: when it comes, and when it is given up."""

    source: tuple[int, ...]
    options: DecodingOptions
    request: int
    arrives: int
    cancelled_after: int | None
    time_allowed: int | None
    streams: bool
    job: Job | None = None
    streamed: list[tuple[int, float]] = field(default_factory=list)

    def enter(self, engine: Engine, now: float) -> None:
        self.job = Job(
            self.source,
            self.options,
            request=self.request,
            deadline_at=None if self.time_allowed is None else now + self.time_allowed,
            on_token=(lambda token, log_prob: self.streamed.append((token, log_prob))) if self.streams else None,
        )
        engine.submit(self.job)


@st.composite
def decoding_options(draw: st.DrawFn) -> DecodingOptions:
    beam_size = draw(st.sampled_from([1, 1, 1, 2, 3, 4]))
    prefix = tuple(draw(st.lists(WORDS, max_size=3)))
    return DecodingOptions(
        beam_size=beam_size,
        n_best=draw(st.integers(1, beam_size)),
        length_penalty=draw(st.sampled_from([None, 0.0, 1.0])),
        max_new_tokens=draw(st.none() | st.integers(len(prefix) + 1, 50)),
        prefix_ids=prefix,
        repetition_guard=draw(st.booleans()),
        log_probs=True,
    )


@st.composite
def guests(draw: st.DrawFn) -> Guest:
    return Guest(
        source=(*draw(st.lists(WORDS, min_size=1, max_size=8)), EOS),
        options=draw(decoding_options()),
        request=draw(st.integers(0, 3)),
        arrives=draw(st.integers(0, 20)),
        cancelled_after=draw(st.none() | st.none() | st.integers(0, 15)),
        time_allowed=draw(st.none() | st.none() | st.integers(1, 30)),
        streams=draw(st.booleans()),
    )


rules_of_bundles = st.builds(
    DecodingRules,
    normalization=st.sampled_from(["gnmt", "length", "none"]),
    alpha=st.sampled_from([0.6, 1.0]),
    stop_rule=st.sampled_from(["count", "bound"]),
    repetition_guard=st.just(True) | st.booleans(),
    forced_end=st.booleans(),
    max_new_tokens=st.integers(20, 60),
)


def play(engine: Engine, num_loops: int, crowd: list[Guest], clock: Clock) -> None:
    """Let the guests come and go; one time unit a turn, the loops by turns."""
    for turn in range(10_000):
        clock.now = float(turn)
        for guest in crowd:
            if guest.arrives == turn:
                guest.enter(engine, clock.now)
            if guest.cancelled_after is not None and guest.arrives + guest.cancelled_after == turn:
                assert guest.job is not None
                guest.job.cancel()
        busy = [engine.turn(loop) for loop in range(num_loops)]
        if turn > 40 and not any(busy):
            return
    raise AssertionError("the engine never came to rest")


def check(guest: Guest, rules: DecodingRules, network: str) -> None:
    assert guest.job is not None
    result = guest.job.future.result(timeout=0)
    answers = [(h.ids, h.score, h.log_probs) for h in result.hypotheses]
    if result.finish_reason in (FinishReason.DEADLINE, FinishReason.CANCELLED):
        assert guest.time_allowed is not None or guest.cancelled_after is not None
        check_partial(guest, rules, network, answers)
    else:
        expected, reason = translate(NETWORKS[network], rules, guest.source, guest.options)
        assert answers == expected
        assert result.finish_reason == reason
    if guest.streams and guest.options.beam_size == 1:
        ids, log_probs = (answers[0][0], answers[0][2]) if answers else ((), ())
        assert guest.streamed == list(zip(ids, log_probs, strict=False))


def check_partial(guest: Guest, rules: DecodingRules, network: str, answers: list) -> None:
    """What a greedy job had when it was given up is how it would have begun alone."""
    if answers and guest.options.beam_size == 1:
        unguarded = DecodingRules(**{**rules.__dict__, "repetition_guard": False})
        ((ids, _, log_probs),), _ = translate(NETWORKS[network], unguarded, guest.source, guest.options)
        assert answers[0][0] == ids[: len(answers[0][0])]
        assert answers[0][2] == log_probs[: len(answers[0][2])]


@settings(max_examples=200, deadline=None)
@given(
    crowd=st.lists(guests(), min_size=1, max_size=16),
    rules=rules_of_bundles,
    network=st.sampled_from(sorted(NETWORKS)),
    max_rows=st.integers(4, 12),
    num_loops=st.integers(1, 2),
    continuous=st.just(True) | st.booleans(),
    bulk_tokens=st.sampled_from([10, 1000]),
    step_limit=st.none() | st.integers(1, 6),
)
def test_a_job_translates_alike_alone_and_in_a_crowd(
    crowd: list[Guest],
    rules: DecodingRules,
    network: str,
    max_rows: int,
    num_loops: int,
    continuous: bool,
    bulk_tokens: int,
    step_limit: int | None,
) -> None:
    """Neighbours, arrivals, pauses, cancellations and deadlines never change anybody's tokens or scores."""
    clock = Clock()
    runners = [FakeRunner(NETWORKS[network], max_rows) for _ in range(num_loops)]
    options = EngineSettings(continuous=continuous, bulk_tokens=bulk_tokens, encode_budget_tokens=20)
    engine = Engine(runners, rules, options, clock)
    with patch.object(Scheduler, "step_limit", lambda self, loop: step_limit) if step_limit else nullcontext():
        play(engine, num_loops, crowd, clock)
    for guest in crowd:
        check(guest, rules, network)
    assert all(not runner.rows for runner in runners), "a row is left behind"
    rest = engine.snapshot()
    assert (rest.active_rows, rest.queued_segments, rest.queued_tokens, rest.running_segments) == (0, 0, 0, 0)
