"""Decodes are shared and results remembered, and no request suffers: deadlines, token order, cancelling, memory.

The engine is not started: each test takes its turns by hand, so that every moment is chosen.
"""

import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.service.engine.job import (
    DecodingOptions,
    DecodingResult,
    DecodingRules,
    FinishReason,
    Hypothesis,
    Job,
    QueueFull,
)
from dragoman.service.engine.loop import Engine
from dragoman.service.engine.promise import Promise
from dragoman.service.engine.scheduler import EngineSettings
from dragoman.service.translation.cache import LookupResult, ResultStore, SegmentCache
from dragoman.service.translation.decode_request import DecodeKey, DecodeRequest
from dragoman.service.translation.unit import Unit
from tests.clock import Clock
from tests.engine.reverse_runner import EOS, FakeRunner, reverse_runner

Tokens = list[int]


class Desk:
    """A cache in front of an engine whose turns the test takes."""

    def __init__(self, max_bytes: int = 1 << 20, share_decodes: bool = True, max_queued_tokens: int = 1000) -> None:
        self.clock = Clock()
        self.runner: FakeRunner = reverse_runner(max_rows=2)
        settings_ = EngineSettings(max_queued_tokens=max_queued_tokens)
        self.engine = Engine([self.runner], DecodingRules(eos_id=EOS, repetition_guard=False), settings_, self.clock)
        self.lookups: list[LookupResult] = []
        self.cache = SegmentCache(max_bytes, self.clock, share_decodes, self.lookups.append)

    def submit(self, *source: int, **changes: object) -> DecodeRequest:
        submitted = request(*source, **changes)
        self.cache.submit_all(self.engine, [submitted])
        return submitted

    def run(self, turns: int = 100) -> None:
        for _ in range(turns):
            if not self.engine.turn():
                break


def request(
    *source: int,
    tenant: str = "",
    bundle: str = "pt-en@1",
    options: DecodingOptions | None = None,
    owner: object = None,
    owner_tokens: int = 0,
    deadline_at: float | None = None,
    on_token: Callable[[int, float], None] | None = None,
) -> DecodeRequest:
    planner: Any = None  # the cache does not look at it
    unit = Unit((), (), (*source, EOS), as_text=False)
    return DecodeRequest(
        planner,
        unit,
        (bundle, unit.source_ids, options or DecodingOptions(), tenant),
        owner=owner,
        owner_tokens=owner_tokens,
        deadline_at=deadline_at,
        on_token=on_token,
    )


def ids(waiter: DecodeRequest) -> Tokens:
    return list(waiter.promise.result(0).hypotheses[0].ids)


def test_a_segment_that_was_translated_is_not_translated_again() -> None:
    """The cache answers at once, with the same ids, and with no time spent."""
    desk = Desk()
    first = desk.submit(5, 6, 7)
    desk.run()
    steps = desk.runner.num_steps
    again = desk.submit(5, 6, 7)
    assert ids(first) == ids(again) == [7, 6, 5]
    assert desk.runner.num_steps == steps
    assert again.promise.result(0).decode_seconds == 0.0
    assert desk.lookups == ["miss", "hit"]


@pytest.mark.parametrize(
    "difference",
    [
        {"tenant": "other"},
        {"bundle": "pt-en@2"},
        {"options": DecodingOptions(beam_size=2)},
        {"options": DecodingOptions(prefix_ids=(9,))},
        {"options": DecodingOptions(log_probs=True)},
    ],
)
def test_only_equal_segments_share(difference: dict[str, object]) -> None:
    """Another tenant, bundle or option is another segment."""
    desk = Desk()
    desk.submit(5, 6)
    desk.submit(5, 6, **difference)
    assert desk.lookups == ["miss", "miss"]
    desk.run()
    desk.submit(5, 6, **difference)
    assert desk.lookups[2:] == ["hit"]


def test_identical_segments_under_way_share_one_decode() -> None:
    """A client that times out and sends again must not double the load."""
    desk = Desk()
    waiting = [desk.submit(5, 6, 7) for _ in range(5)]
    desk.run()
    assert [ids(waiter) for waiter in waiting] == [[7, 6, 5]] * 5
    assert desk.runner.added == [[4]]
    assert desk.lookups == ["miss", *["shared"] * 4]
    assert desk.cache.num_decodes == 0


def test_without_sharing_each_request_is_decoded() -> None:
    """The switch works, and so does the cache without it."""
    desk = Desk(share_decodes=False, max_bytes=0)
    waiting = [desk.submit(5, 6) for _ in range(2)]
    desk.run()
    assert [ids(waiter) for waiter in waiting] == [[6, 5]] * 2
    assert sum(map(len, desk.runner.added)) == 2
    desk.submit(5, 6)
    assert desk.lookups == ["miss"] * 3


def test_the_decode_goes_on_while_one_waiter_is_left() -> None:
    """A client that leaves must not end the decode of another."""
    desk = Desk()
    leaves, stays = desk.submit(5, 6, 7), desk.submit(5, 6, 7)
    desk.run(1)
    leaves.promise.cancel()
    desk.run()
    assert ids(stays) == [7, 6, 5]


def test_the_decode_ends_when_the_last_waiter_leaves() -> None:
    """A decode without waiters gives its rows back, and a new request starts a new decode."""
    desk = Desk()
    waiting = [desk.submit(5, 6, 7) for _ in range(2)]
    desk.run(1)
    for waiter in waiting:
        waiter.promise.cancel()
    desk.run(1)
    assert desk.engine.snapshot().active_rows == 0
    assert desk.cache.num_decodes == 0
    newcomer = desk.submit(5, 6, 7)
    desk.run()
    assert ids(newcomer) == [7, 6, 5]


def test_late_streamers_get_a_replay() -> None:
    """Every listener gets every token once and in order, whenever it joined."""
    desk = Desk()
    heard: list[Tokens] = [[], [], []]
    for number in range(3):
        desk.submit(5, 6, 7, 8, on_token=lambda token, _, own=heard[number]: own.append(token))
        desk.run(1)
    desk.run()
    assert heard == [[8, 7, 6, 5]] * 3


def test_a_streamer_that_joins_a_silent_decode_gets_the_result() -> None:
    """Listening costs the engine something, so a decode without a listener at its start has none later."""
    desk = Desk()
    desk.submit(5, 6)
    heard: Tokens = []
    late = desk.submit(5, 6, on_token=lambda token, _: heard.append(token))
    desk.run()
    assert ids(late) == [6, 5]
    assert heard == []


def test_a_running_decode_lasts_until_the_latest_deadline() -> None:
    """A request with more time must not be cut short by one with less."""
    desk = Desk()
    desk.submit(5, 6, 7, deadline_at=101.0)
    patient = desk.submit(5, 6, 7, deadline_at=200.0)
    desk.run(1)
    desk.clock.now = 150.0
    desk.run()
    assert patient.promise.result(0).finish_reason is FinishReason.EOS


def test_an_early_deadline_gets_what_was_heard_so_far() -> None:
    """The decode goes on for the other request."""
    desk = Desk()
    heard: Tokens = []
    hasty = desk.submit(5, 6, 7, deadline_at=101.0, on_token=lambda token, _: heard.append(token))
    patient = desk.submit(5, 6, 7)
    desk.run(2)
    desk.clock.now = 102.0
    desk.cache.expire(hasty)
    result = hasty.promise.result(0)
    assert result.finish_reason is FinishReason.DEADLINE
    assert list(result.hypotheses[0].ids) == heard == [7, 6]
    desk.run()
    assert ids(patient) == [7, 6, 5]


def test_a_decode_ends_with_the_deadline_of_its_last_waiter() -> None:
    """Its deadline was that of a waiter that left; nothing ended it then, and it kept its row to the end."""
    desk, source = Desk(), range(5, 45)
    hasty, patient = desk.submit(*source, deadline_at=101.0), desk.submit(*source)
    other = desk.submit(50, 6)
    desk.run(1)
    patient.promise.cancel()
    desk.clock.now = 102.0
    desk.cache.expire(hasty)
    other.promise.cancel()
    desk.run(1)
    assert hasty.promise.result(0).finish_reason is FinishReason.DEADLINE
    assert desk.engine.snapshot().active_rows == 0


def test_the_engine_itself_ends_a_decode_that_all_waiters_gave_up_on() -> None:
    """With one deadline for all waiters `expire` does nothing: the engine knows the best partial answer."""
    desk = Desk()
    waiter = desk.submit(5, 6, 7, deadline_at=101.0)
    desk.submit(5, 6, 7, 8)  # in company a first turn is one step
    desk.run(1)
    desk.clock.now = 102.0
    desk.cache.expire(waiter)
    assert not waiter.promise.done()
    desk.run()
    assert waiter.promise.result(0).finish_reason is FinishReason.DEADLINE
    assert ids(waiter) == [7]


def test_a_queued_decode_is_queued_again_for_those_with_time() -> None:
    """The queue drops a job at its first deadline; a waiter with a later deadline gets a new job."""
    desk = Desk()
    hasty = desk.submit(5, 6, deadline_at=101.0)
    patient = desk.submit(5, 6, deadline_at=200.0)
    desk.clock.now = 102.0
    desk.run()
    assert hasty.promise.result(0).finish_reason is FinishReason.DEADLINE
    assert hasty.promise.result(0).hypotheses == ()
    desk.run()
    assert ids(patient) == [6, 5]


def test_a_small_request_takes_its_own_turn_for_a_decode_that_waits_in_a_long_line() -> None:
    """An interactive request must not wait behind a document that wants the same sentence."""
    desk = Desk()
    blocking = [desk.submit(20 + n, 6, owner="document", owner_tokens=500) for n in range(4)]
    of_document = desk.submit(5, 6, owner="document", owner_tokens=500)
    of_line = desk.submit(5, 6, owner="line", owner_tokens=3)
    desk.run()
    assert ids(of_document) == ids(of_line) == [6, 5]
    assert all(waiter.promise.done() for waiter in blocking)
    assert sum(map(len, desk.runner.added)) == 5  # the one that was overtaken never ran


@pytest.mark.parametrize("turns", range(6))
def test_a_decode_that_speaks_before_it_takes_over_is_heard_in_full(turns: int) -> None:
    """The submitting thread may be interrupted between submitting and taking over; tokens of that time were lost."""
    desk, heard = Desk(), list[list[int]]([[], []])
    listeners = [lambda token, _, to=each: to.append(token) for each in heard]
    for number in range(4):
        desk.submit(20 + number, 6, 7, 8, 9, 10, 11, owner="document", owner_tokens=500)
    of_document = desk.submit(5, 6, 7, 8, 9, owner="document", owner_tokens=500, on_token=listeners[0])
    submit = desk.engine.submit

    def held_up(job: Job) -> Promise[DecodingResult]:
        promise = submit(job)
        desk.run(turns)
        return promise

    desk.engine.submit = held_up  # type: ignore[method-assign]
    of_line = desk.submit(5, 6, 7, 8, 9, owner="line", owner_tokens=3, on_token=listeners[1])
    desk.run()
    assert ids(of_line) == ids(of_document) == [9, 8, 7, 6, 5]
    assert heard == [[9, 8, 7, 6, 5]] * 2


def test_a_refusal_leaves_nothing_behind() -> None:
    """All or none: a full queue refuses the whole request."""
    desk = Desk(max_queued_tokens=8)
    first = desk.submit(5, 6, 7)
    with pytest.raises(QueueFull):
        desk.cache.submit_all(desk.engine, [request(5, 6, 7), request(1, 2, 3), request(4, 5, 6)])
    assert desk.cache.num_decodes == 1
    assert desk.engine.snapshot().queued_segments == 1
    desk.run()
    assert ids(first) == [7, 6, 5]


def while_submitting(engine: Engine, act: Callable[[], None]) -> None:
    """Act as another thread would, after a request's lookups and before the engine accepts or refuses its jobs."""
    submit_all = engine.submit_all

    def held_up(jobs: Sequence[Job]) -> list[Promise[DecodingResult]]:
        engine.submit_all = submit_all  # type: ignore[method-assign]
        act()
        return submit_all(jobs)

    engine.submit_all = held_up  # type: ignore[method-assign]


@pytest.mark.parametrize("request_tokens", [3, 30, 300])  # smaller than the document, as large, larger
def test_who_joined_a_request_that_is_refused_is_served(request_tokens: int) -> None:
    """The document is too large for the queue; the interactive request that shares a sentence with it is not."""
    desk, of_line = Desk(max_queued_tokens=20), list[DecodeRequest]()
    desk.engine.submit(Job((9, 9, EOS)))
    while_submitting(desk.engine, lambda: of_line.append(desk.submit(5, 6, owner="line", owner_tokens=request_tokens)))
    document = [request(5, 6, owner="document", owner_tokens=30)]
    document += [request(8, number, owner="document", owner_tokens=30) for number in range(4, 12)]
    with pytest.raises(QueueFull):
        desk.cache.submit_all(desk.engine, document)
    assert desk.cache.num_decodes == 1
    desk.run()
    assert ids(of_line[0]) == [6, 5]
    assert desk.runner.added == [[3, 3]]  # nothing of the document


def test_who_joined_a_request_that_is_refused_gets_a_refusal_of_its_own() -> None:
    """If the queue has no room for it either: a request must not wait for a decode that never begins."""
    desk, of_line = Desk(max_queued_tokens=8), list[DecodeRequest]()
    desk.engine.submit(Job((9, 9, 9, 9, 9, 9, EOS)))
    while_submitting(desk.engine, lambda: of_line.append(desk.submit(5, 6)))
    with pytest.raises(QueueFull):
        desk.submit(5, 6)
    assert isinstance(of_line[0].promise.exception(0), QueueFull)
    assert desk.cache.num_decodes == 0


def test_who_joined_a_request_that_is_refused_may_leave() -> None:
    """A decode without waiters must not begin."""
    desk = Desk(max_queued_tokens=8)
    desk.engine.submit(Job((9, 9, EOS)))
    while_submitting(desk.engine, lambda: desk.cache.leave(desk.submit(5, 6)))
    with pytest.raises(QueueFull):
        desk.cache.submit_all(desk.engine, [request(5, 6), request(1, 2, 3), request(4, 5, 6)])
    assert desk.cache.num_decodes == 0
    assert desk.engine.snapshot().queued_segments == 1


def running_document(desk: Desk, on_token: Callable[[int, float], None] | None = None) -> DecodeRequest:
    """A document of 41 sentences, after one step; returns the request for its first sentence, of sixteen steps."""
    others = [request(20 + number, *range(4, 19), owner="document", owner_tokens=700) for number in range(40)]
    sentence = request(*range(4, 19), owner="document", owner_tokens=700, on_token=on_token)
    desk.cache.submit_all(desk.engine, [sentence, *others])
    desk.run(1)
    return sentence


def num_encoded(desk: Desk) -> int:
    desk.run(1000)
    return sum(map(len, desk.runner.added))


def test_a_line_overtakes_a_document_that_runs() -> None:
    """The document's row pauses while interactive rows run, so the interactive request would wait for all of them."""
    desk = Desk()
    of_document = running_document(desk)
    of_line = desk.submit(*range(4, 19), owner="line", owner_tokens=16)
    assert desk.lookups[-1] == "shared"
    assert num_encoded(desk) == 42
    assert ids(of_document) == ids(of_line) == [*reversed(range(4, 19))]


def test_nobody_overtakes_a_decode_that_was_heard() -> None:
    """Tokens that were streamed cannot be taken back."""
    desk, heard = Desk(), list[int]()
    running_document(desk, lambda token, _: heard.append(token))
    of_line = desk.submit(*range(4, 19), owner="line", owner_tokens=16)
    assert num_encoded(desk) == 41
    assert heard == ids(of_line) == [*reversed(range(4, 19))]


def test_a_document_does_not_overtake_one_that_runs() -> None:
    """Its own job would begin again, and pause like the other."""
    desk = Desk()
    running_document(desk)
    of_another = desk.submit(*range(4, 19), owner="another", owner_tokens=600)
    assert num_encoded(desk) == 41
    assert ids(of_another) == [*reversed(range(4, 19))]


def test_a_failing_engine_is_told_to_every_waiter_and_not_remembered() -> None:
    """Errors are shared like results, but only results are kept."""
    desk = Desk()
    waiting = [desk.submit(5, 6) for _ in range(2)]
    desk.runner.fail_at.add("step")
    desk.run()
    assert all("runner" in str(waiter.promise.exception(0)) for waiter in waiting)
    assert desk.cache.num_bytes == 0


def test_only_results_that_ended_by_themselves_are_remembered() -> None:
    """A partial answer must not be given to other requests."""
    desk = Desk()
    waiter = desk.submit(5, 6, 7, options=DecodingOptions(max_new_tokens=2))
    desk.run()
    assert waiter.promise.result(0).finish_reason is FinishReason.LENGTH
    assert desk.cache.num_bytes == 0


def result_of(length: int) -> DecodingResult:
    return DecodingResult((Hypothesis((7,) * length, 0.0, (), True, FinishReason.EOS),), FinishReason.EOS)


def key_of(number: int) -> DecodeKey:
    return ("b", (number,) * 3, DecodingOptions(), "")


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 60)), max_size=60), st.integers(4000, 40_000))
@settings(max_examples=100, deadline=None)
def test_memory_stays_within_the_budget_and_the_least_recently_used_go(
    uses: list[tuple[int, int]], budget: int
) -> None:
    """The budget limits memory, not the number of entries; a lookup counts as use."""
    store = ResultStore(budget)
    recent: list[DecodeKey] = []
    for number, length in uses:
        key = key_of(number)
        if length % 3 or store.get(key) is None:
            store.put(key, result_of(length))
        recent = [each for each in recent if each != key] + [key]
        assert store.num_bytes <= budget
    assert store.keys() == recent[len(recent) - len(store.keys()) :]


def test_a_result_larger_than_the_budget_is_not_kept() -> None:
    """It must not push everything else out."""
    store = ResultStore(3000)
    store.put(key_of(1), result_of(5))
    store.put(key_of(2), result_of(500))
    assert store.keys() == [key_of(1)]


def test_threads_that_come_and_go_get_their_own_answers() -> None:
    """Every request gets its own answer, and nothing is left over, whatever the threads do."""
    runner = reverse_runner(max_rows=4)
    engine = Engine([runner], DecodingRules(eos_id=EOS, repetition_guard=False))
    cache = SegmentCache(1 << 16, time.monotonic)
    engine.start()

    def client(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(60):
            source = [rng.randint(4, 9) for _ in range(rng.randint(1, 3))]
            heard: Tokens = []
            listener = (lambda token, _, own=heard: own.append(token)) if rng.random() < 0.5 else None
            waiter = request(*source, owner_tokens=rng.randint(1, 9), on_token=listener)
            cache.submit_all(engine, [waiter])
            if rng.random() < 0.3:
                waiter.promise.cancel()
                continue
            result = waiter.promise.result(30)
            assert list(result.hypotheses[0].ids) == source[::-1]
            assert heard in ([], source[::-1])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(client, range(8)))
    engine.stop()
    assert cache.num_decodes == 0
