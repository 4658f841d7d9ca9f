"""Whether a decode loop still moves, told by a clock that is turned by hand."""

from __future__ import annotations

import threading

import pytest

from dragoman.service.engine.heartbeat import Heartbeat
from dragoman.service.engine.job import DecodingRules, EngineFailure, Job
from dragoman.service.engine.loop import Engine
from tests.clock import Clock
from tests.engine.reverse_runner import EOS, reverse_runner

RULES = DecodingRules(max_new_tokens=200)
SOURCE = (*range(4, 30), EOS)


def test_an_idle_loop_has_not_stalled_however_long_it_waits() -> None:
    """A server without requests is healthy."""
    clock = Clock(100.0)
    engine = Engine([reverse_runner()], RULES, clock=clock)
    clock.now = 5000.0
    assert engine.heartbeats() == (Heartbeat(None, has_work=False, stalled_seconds=0.0),)
    assert not engine.turn()
    clock.now = 9000.0
    assert engine.heartbeats() == (Heartbeat(5000.0, has_work=False, stalled_seconds=0.0),)


def test_work_that_nobody_takes_up_counts_from_when_it_came() -> None:
    """A loop that died while it was idle shows as soon as there is something to do, and not before."""
    clock = Clock(100.0)
    engine = Engine([reverse_runner()], RULES, clock=clock)
    engine.turn()
    clock.now = 5000.0
    engine.submit(Job(SOURCE))
    assert engine.heartbeats() == (Heartbeat(100.0, has_work=True, stalled_seconds=0.0),)
    clock.now = 5003.0
    assert engine.heartbeats() == (Heartbeat(100.0, has_work=True, stalled_seconds=3.0),)


def test_every_turn_is_a_beat() -> None:
    """While it moves it has not stalled, however long its work has been there."""
    clock = Clock(100.0)
    engine = Engine([reverse_runner()], RULES, clock=clock)
    future = engine.submit(Job(SOURCE))
    while not future.done():
        clock.now += 10.0
        engine.turn()
        assert engine.heartbeats()[0].last_turn_at == clock.now
        assert engine.heartbeats()[0].stalled_seconds == 0.0
    assert not engine.heartbeats()[0].has_work


def test_a_step_that_does_not_end_shows_from_the_last_turn_on() -> None:
    """The case that matters: the runtime hangs in the middle of a batch."""
    clock, runner = Clock(100.0), reverse_runner()
    engine = Engine([runner], RULES, clock=clock)
    seen: list[Heartbeat] = []

    def hang(step: int) -> None:
        clock.now += 7.0
        seen.extend(engine.heartbeats())

    engine.submit(Job(SOURCE))
    engine.turn()
    runner.before_step = hang
    engine.turn()
    assert seen[0] == Heartbeat(100.0, has_work=True, stalled_seconds=7.0)
    assert engine.heartbeats()[0].stalled_seconds == 0.0


def test_a_batch_that_fails_is_a_beat_too() -> None:
    """The loop goes on after it; the failure is told to the jobs."""
    clock, runner = Clock(100.0), reverse_runner()
    engine = Engine([runner], RULES, clock=clock)
    future = engine.submit(Job(SOURCE))
    clock.now = 200.0
    runner.fail_at = {"step"}
    engine.turn()
    assert engine.heartbeats() == (Heartbeat(200.0, has_work=False, stalled_seconds=0.0),)
    with pytest.raises(EngineFailure):
        future.result(0)


def test_each_loop_has_its_own_beat_and_the_snapshot_carries_them() -> None:
    """One loop may hang while the other goes on."""
    clock = Clock(100.0)
    engine = Engine([reverse_runner(), reverse_runner()], RULES, clock=clock)
    engine.submit(Job(SOURCE))
    engine.turn(0)
    clock.now = 130.0
    engine.turn(1)
    assert engine.snapshot().heartbeats == (
        Heartbeat(100.0, has_work=True, stalled_seconds=30.0),
        Heartbeat(130.0, has_work=False, stalled_seconds=0.0),
    )


def test_a_loop_that_hangs_keeps_nobody_from_reading_its_heartbeat() -> None:
    """A probe that waits for the loop it asks about would tell nothing."""
    runner, hangs, release = reverse_runner(), threading.Event(), threading.Event()

    def hang(step: int) -> None:
        hangs.set()
        release.wait(30)

    runner.before_step = hang
    engine = Engine([runner], RULES)
    engine.start()
    try:
        future = engine.submit(Job(SOURCE))
        assert hangs.wait(30)
        (beat,) = engine.heartbeats()
        assert beat.has_work
        assert beat.stalled_seconds > 0.0
    finally:
        release.set()
    assert future.result(30).hypotheses
    engine.stop()
