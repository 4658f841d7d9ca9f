"""The engine on its own threads: submitted to from many, woken, stopped. Events and futures order things, not time."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from dragoman.service.engine.job import DecodingOptions, DecodingRules, EngineStopped, FinishReason, Job, QueueFull
from dragoman.service.engine.loop import Engine
from dragoman.service.engine.scheduler import EngineSettings
from dragoman.service.translation.arrival import arrival
from tests.engine.reference_search import translate
from tests.engine.reverse_runner import EOS, FakeRunner, dream, reverse_runner

RULES = DecodingRules(max_new_tokens=60)
PATIENCE = 60.0  # seconds until a test that hangs is called so


@pytest.fixture
def engines() -> Iterator[list[Engine]]:
    """Engines that are stopped when the test is over."""
    started: list[Engine] = []
    yield started
    for engine in started:
        engine.stop(drain=False)


class Gate(FakeRunner):
    """A runner that steps only while its gate is open, and says when it has come to it."""

    def __init__(self) -> None:
        super().__init__(dream())
        self.open, self.reached = threading.Event(), threading.Event()
        self.before_step = self._wait

    def _wait(self, step: int) -> None:
        self.reached.set()
        assert self.open.wait(PATIENCE)


def test_many_threads_submit_and_each_gets_its_own_answer(engines: list[Engine]) -> None:
    """Two loops, eight submitters, greedy and beams: everybody gets what they would get alone."""
    network = dream()
    engine = Engine([FakeRunner(network) for _ in range(2)], RULES)
    engines.append(engine)
    engine.start()

    def submit(number: int) -> None:
        jobs = [
            Job((4 + number, 4 + turn % 8, EOS), DecodingOptions(beam_size=1 + turn % 4, log_probs=True), number)
            for turn in range(20)
        ]
        for job in jobs:
            engine.submit(job)
        for job in jobs:
            result = job.future.result(PATIENCE)
            expected, reason = translate(network, RULES, job.source_ids, job.options)
            assert [(h.ids, h.score, h.log_probs) for h in result.hypotheses] == expected
            assert result.finish_reason == reason

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(submit, range(8)))
    assert engine.snapshot().active_rows == 0


def test_draining_finishes_what_was_accepted() -> None:
    """A rolling update loses nobody's sentence."""
    runner = Gate()
    engine = Engine([runner], RULES)
    engine.start()
    futures = engine.submit_all([Job((4, 5 + number % 7, EOS)) for number in range(50)])
    assert runner.reached.wait(PATIENCE)
    runner.open.set()
    engine.stop(drain=True)
    assert all(future.result(timeout=0).finish_reason is FinishReason.EOS for future in futures)
    with pytest.raises(EngineStopped):
        engine.submit(Job((4, EOS)))
    engine.stop(drain=True)  # twice is as good as once


def test_stopping_without_draining_fails_what_is_left() -> None:
    """Nobody is left waiting for an engine that is gone."""
    runner = Gate()
    engine = Engine([runner], DecodingRules(max_new_tokens=10_000))
    engine.start()
    futures = engine.submit_all([Job((4, 5, EOS), DecodingOptions(max_new_tokens=9_000)) for _ in range(20)])
    assert runner.reached.wait(PATIENCE)
    runner.before_step = lambda step: None
    stopper = threading.Thread(target=engine.stop, kwargs={"drain": False})
    stopper.start()
    runner.open.set()
    stopper.join(PATIENCE)
    assert not stopper.is_alive()
    assert all(future.done() for future in futures)
    assert isinstance(futures[-1].exception(), EngineStopped)


def test_a_drain_that_takes_too_long_is_cut_short() -> None:
    """A grace period ends."""
    runner = Gate()
    engine = Engine([runner], RULES)
    engine.start()
    future = engine.submit(Job((4, 5, EOS)))
    assert runner.reached.wait(PATIENCE)
    stopper = threading.Thread(target=engine.stop, kwargs={"drain": True, "timeout_seconds": 0.0})
    stopper.start()
    runner.open.set()
    stopper.join(PATIENCE)
    assert not stopper.is_alive()
    assert future.done()


def test_a_failing_runner_does_not_end_its_thread(engines: list[Engine]) -> None:
    """After the failure the same engine translates on."""
    runner = reverse_runner()
    engine = Engine([runner], RULES)
    engines.append(engine)
    runner.fail_at.add("step")
    engine.start()
    assert engine.submit(Job((4, 5, EOS))).exception(PATIENCE) is not None
    assert engine.submit(Job((4, 5, EOS))).result(PATIENCE).hypotheses[0].ids == (5, 4)


def test_a_full_queue_refuses_while_the_batch_is_busy(engines: list[Engine]) -> None:
    """Refused at the door, with nothing running disturbed."""
    runner = Gate()
    engine = Engine([runner], RULES, EngineSettings(max_queued_tokens=6))
    engines.append(engine)
    engine.start()
    first = engine.submit(Job((4, 5, EOS)))
    assert runner.reached.wait(PATIENCE)
    waiting = engine.submit_all([Job((4, 6, EOS)), Job((4, 7, EOS))])
    with pytest.raises(QueueFull):
        engine.submit(Job((4, 8, EOS)))
    runner.open.set()
    assert all(future.result(PATIENCE).hypotheses for future in [first, *waiting])


async def test_cancelling_a_task_frees_the_rows(engines: list[Engine]) -> None:
    """A request handler that is cancelled needs to do nothing else."""
    runner = Gate()
    engine = Engine([runner], RULES)
    engines.append(engine)
    engine.start()
    job = Job((4, 5, EOS))
    task = asyncio.ensure_future(arrival(engine.submit(job)))
    assert await asyncio.to_thread(runner.reached.wait, PATIENCE)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert job.cancelled
    runner.open.set()
    after = await arrival(engine.submit(Job((6, 5, EOS))))
    assert after.hypotheses


def test_an_idle_loop_keeps_nobodys_job(engines: list[Engine]) -> None:
    """Whoever was answered last is not remembered until the next one comes."""
    engine = Engine([reverse_runner()], RULES)
    engines.append(engine)
    engine.start()
    gone = threading.Event()
    job = Job((4, 5, 6, EOS))
    weakref.finalize(job, gone.set)
    engine.submit(job).result(PATIENCE)
    del job
    assert gone.wait(PATIENCE / 6)
