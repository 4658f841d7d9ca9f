"""The engine and its decode loops: one thread and one batch for each loop, one queue for all of them.

A turn of a loop drops cancelled and late jobs, admits and encodes new ones, takes one or more steps, and answers the
jobs that finished. `scheduler` decides which jobs join, `search` what the candidates mean; `runner` runs the network.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dragoman.service.engine.heartbeat import Heartbeat, heartbeat
from dragoman.service.engine.job import (
    DecodingResult,
    DecodingRules,
    EngineFailure,
    EngineStopped,
    FinishReason,
    Job,
    JobRejected,
    max_new_tokens_of,
)
from dragoman.service.engine.locked_scheduler import Joined, SharedQueue
from dragoman.service.engine.promise import Promise
from dragoman.service.engine.rows import Ints
from dragoman.service.engine.scheduler import EngineSettings, Scheduler, Turn, like_lengths
from dragoman.service.engine.seams import Observer, Runner, SilentObserver
from dragoman.service.engine.search import Advance, FinishedJob, Search
from dragoman.service.engine.token_choice import Question

_MOST_STEPS = 16  # that a loop takes before it talks to the queue again

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RowSnapshot:
    """One row of a batch: its job, its number in that job's beam, its tokens so far; never any text."""

    job: int
    beam: int
    beam_size: int
    length: int
    max_length: int


@dataclass(frozen=True)
class EngineSnapshot:
    """The engine at one moment, for a live page and for gauges."""

    loops: tuple[tuple[RowSnapshot, ...], ...]
    row_capacity: int
    queued_segments: int
    queued_tokens: int
    running_segments: int
    drain_tokens_per_second: float | None
    num_steps: int
    heartbeats: tuple[Heartbeat, ...] = ()  # one for each loop

    @property
    def active_rows(self) -> int:
        return sum(map(len, self.loops))


class Engine:
    """Runs jobs on one or more runners."""

    def __init__(
        self,
        runners: Sequence[Runner],
        rules: DecodingRules,
        settings: EngineSettings | None = None,
        clock: Callable[[], float] = time.monotonic,
        observer: Observer | None = None,
    ) -> None:
        self._rules = rules
        self._clock = clock
        self._observer = observer or SilentObserver()
        self._max_rows = min(runner.max_rows for runner in runners)
        self._max_source_tokens = min(runner.max_source_tokens for runner in runners)
        self._settings = settings or EngineSettings()
        self._queue = SharedQueue(Scheduler(self._settings, [runner.max_rows for runner in runners]))
        self._loops = [
            DecodeLoop(number, runner, Search(rules, runner.max_rows), self._queue, clock, self._observer)
            for number, runner in enumerate(runners)
        ]
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Start one thread per decode loop."""
        assert not self._threads, "an engine starts once"
        for number, loop in enumerate(self._loops):
            thread = threading.Thread(target=loop.run, name=f"decode-{number}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def submit(self, job: Job) -> Promise[DecodingResult]:
        """Queue a job. Raises QueueFull, JobRejected or EngineStopped; all else comes through the future."""
        return self.submit_all([job])[0]

    def submit_all(self, jobs: Sequence[Job]) -> list[Promise[DecodingResult]]:
        """Queue all of the jobs or none of them."""
        if not jobs:
            return []
        for job in jobs:
            self._check(job)
            job.submitted_at = self._clock()
        self._queue.offer(jobs)
        for job in jobs:
            job.withdraw = self._withdraw
            if job.cancelled:  # before it had this callback
                self._withdraw(job)
        return [job.future for job in jobs]

    def replace(self, job: Job) -> None:
        """Give up a job that another job does instead. A queued one is not counted as cancelled: no caller has left."""
        if self._queue.withdraw(job):
            job.future.cancel()
        else:
            job.cancel()

    def is_bulk(self, num_source_tokens: int) -> bool:
        """Whether a request with this many source tokens is bulk: its rows may pause while interactive rows run."""
        return num_source_tokens > self._settings.bulk_tokens

    def stop(self, drain: bool = True, timeout_seconds: float | None = None) -> None:
        """Take no more jobs. Finish those accepted; without `drain`, or after the timeout, fail them."""
        self._queue.stop(drain=drain and bool(self._threads))
        deadline_at = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        for thread in self._threads:
            thread.join(None if deadline_at is None else max(0.0, deadline_at - time.monotonic()))
        self._queue.stop(drain=False)
        for thread in self._threads:
            thread.join()
        for loop in self._loops:
            loop.abandon(EngineStopped("The engine stopped before this job was done."))

    def turn(self, loop: int = 0) -> bool:
        """One turn of a loop on the calling thread; False when idle. Only for an engine that was not started."""
        assert not self._threads, "a started engine turns by itself"
        return self._loops[loop].turn()

    def heartbeats(self) -> tuple[Heartbeat, ...]:
        """Whether each loop moves. It never waits for a loop, not even for one that hangs."""
        now = self._clock()
        return tuple(
            heartbeat(now, loop.last_turn_at, self._queue.oldest_work_at(number))
            for number, loop in enumerate(self._loops)
        )

    def snapshot(self) -> EngineSnapshot:
        loops = tuple(loop.snapshot() for loop in self._loops)
        segments, tokens, running, rate = self._queue.measure()
        return EngineSnapshot(
            loops,
            row_capacity=sum(loop.max_rows for loop in self._loops),
            queued_segments=segments,
            queued_tokens=tokens,
            running_segments=running,
            drain_tokens_per_second=rate,
            num_steps=sum(loop.num_steps for loop in self._loops),
            heartbeats=self.heartbeats(),
        )

    def _check(self, job: Job) -> None:
        options, limit = job.options, max_new_tokens_of(job, self._rules)
        if not 1 <= job.num_source_tokens <= self._max_source_tokens:
            raise JobRejected(
                f"The source has {job.num_source_tokens} tokens; this model takes 1 to {self._max_source_tokens}: "
                "split the text."
            )
        if options.beam_size > self._max_rows:
            raise JobRejected(f"beam_size is {options.beam_size}; this server's batch has {self._max_rows} rows.")
        if len(options.prefix_ids) >= limit:
            raise JobRejected(
                f"The target prefix has {len(options.prefix_ids)} tokens and leaves no room in max_new_tokens, {limit}."
            )
        if self._rules.eos_id in options.prefix_ids:
            raise JobRejected("The target prefix contains the end-of-sentence token.")

    def _withdraw(self, job: Job) -> None:
        """Called when a job is cancelled: a queued one leaves at once; a running one is dropped by its loop."""
        if self._queue.withdraw(job):
            _resolve(job, FinishReason.CANCELLED, None, self._clock(), self._observer)


class _StepTimes:
    """How long each step of one turn took; the steps of one run share its time equally."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._last_at = self.first_at = clock()
        self.seconds: list[float] = []

    def note(self, steps: int) -> float:
        """`steps` more steps have just been run."""
        now = self._clock()
        if not self.seconds:
            self.first_at = now  # when the first token was known
        self.seconds += [(now - self._last_at) / steps] * steps
        self._last_at = now
        return now


class DecodeLoop:
    """One runner, its batch, and the turns of both."""

    def __init__(
        self,
        number: int,
        runner: Runner,
        search: Search,
        queue: SharedQueue,
        clock: Callable[[], float],
        observer: Observer,
    ) -> None:
        self.max_rows = runner.max_rows
        self.last_turn_at: float | None = None  # when a turn last ended; others read it without a lock
        self._number = number
        self._runner = runner
        self._search = search
        self._queue = queue
        self._clock = clock
        self._observer = observer
        self._next_deadline_at = math.inf  # no running job has an earlier deadline
        self._num_cancelled = 0  # the queue's count when this loop last looked
        self._drained_tokens = 0  # source tokens of the jobs that ended in this turn
        self._turns: list[Turn] = []  # that the scheduler does not know yet
        self._num_unreported = 0  # steps in them
        self._asked = Joined([], [], runner.max_rows, math.inf, True, 0)  # the queue's last answer
        self._changed = True  # whether jobs joined or left since then
        self._state = threading.Lock()  # guards the search against snapshots

    @property
    def num_steps(self) -> int:
        return self._search.num_steps

    def run(self) -> None:
        while self._queue.wait(self._number):
            self.turn()

    def turn(self) -> bool:
        """Drop, admit, encode, step, answer; False when there was nothing to do. A failure costs one batch."""
        try:
            return self._turn()
        except Exception as error:
            log.exception("The runner failed. The jobs of its batch fail, and the loop goes on.")
            failure = EngineFailure(f"The translation failed inside the runner: {error}")
            failure.__cause__ = error
            self.abandon(failure)
            self.last_turn_at = self._clock()
            return True

    def _turn(self) -> bool:
        began = self._clock()
        self._drained_tokens = 0
        self._drop(began)
        joined = self._admit(began)
        if not self._search.num_rows:
            self._changed = True  # the batch has room again
            self.last_turn_at = began
            return False
        rows, step_seconds = self._step(joined)
        self.last_turn_at = ended = self._clock()
        seconds = ended - began
        self._turns.append(Turn(rows, sum(step_seconds) / len(step_seconds), self._drained_tokens, seconds))
        self._num_unreported += len(step_seconds)
        self._observer.busy(seconds)
        return True

    def _drop(self, now: float) -> None:
        """Free the rows of jobs that were cancelled or are past their deadline."""
        num_cancelled = self._queue.num_cancelled
        if now < self._next_deadline_at and num_cancelled == self._num_cancelled:
            return
        self._num_cancelled = num_cancelled
        running = self._search.active
        cancelled = [job for job in running if job.cancelled]
        late = [job for job in running if _deadline_of(job) <= now and not job.cancelled]
        for jobs, reason in ((cancelled, FinishReason.CANCELLED), (late, FinishReason.DEADLINE)):
            if jobs:
                with self._state:
                    advance = self._search.give_up(jobs, reason)
                self._answer(advance)
        self._next_deadline_at = min(map(_deadline_of, running), default=math.inf)

    def _admit(self, now: float) -> list[Job]:
        # In most turns no job could join and none left: then the queue and its lock are left alone.
        changed = self._changed or self._asked.ask_again or self._num_unreported >= _MOST_STEPS
        joined = self._join(now) if changed or self._is_called(now) else []
        limit = self._asked.step_limit
        num_interactive = sum(not job.bulk for job in joined) if joined else 0
        with self._state:
            parents = self._search.settle(len(joined), num_interactive, limit)
        if parents is not None:
            self._runner.keep(parents)
        for group in like_lengths(joined) if joined else ():
            self._encode(group)
        self._search.pause_beyond(limit)
        return joined

    def _is_called(self, now: float) -> bool:
        """Whether something has come that must not wait: a job, a cancellation, a deadline."""
        asked = self._asked
        return self._queue.news != asked.news or now >= asked.ask_again_at or now >= self._next_deadline_at

    def _join(self, now: float) -> list[Job]:
        asked = self._queue.join(self._number, now, self._turns)
        self._asked = asked._replace(expired=[], jobs=[])  # an idle loop must not keep jobs in memory
        self._turns, self._num_unreported, self._changed = [], 0, False
        joined = asked.jobs
        for job in asked.expired:
            _resolve(job, FinishReason.DEADLINE, None, now, self._observer)
        for job in joined:
            job.admitted_at = now
            self._next_deadline_at = min(self._next_deadline_at, _deadline_of(job))
            self._observer.admitted(now - job.submitted_at)
        return joined

    def _encode(self, group: list[Job]) -> None:
        began = self._clock()
        with self._state:
            rows = self._search.add(group)
        self._runner.add([job.source_ids for job in group], rows)
        ended = self._clock()
        self._observer.encoded(ended - began, sum(job.num_source_tokens for job in group), len(group))
        for job in group:
            job.encoded_at = ended

    def _step(self, joined: list[Job]) -> tuple[int, list[float]]:
        """One step, or several if no row needs a check between them. Returns the rows, and the time of each step."""
        question, num_jobs = self._search.ask(), len(self._search.active)
        most = min(self._search.quiet_steps(), max(1, _MOST_STEPS - self._num_unreported))
        if joined and (self._asked.ask_again or num_jobs > 1):  # more may be to come
            most = 1
        times = _StepTimes(self._clock)
        advance = self._step_once(question, times) if most == 1 else self._multi_step(question.next_ids, most, times)
        self._observer.stepped(times.seconds, len(question.next_ids), num_jobs)
        for job in joined:
            self._observer.first_token(times.first_at - job.submitted_at)
        self._answer(advance)
        return len(question.next_ids), times.seconds

    def _step_once(self, question: Question, times: _StepTimes) -> Advance:
        if question.wanted is None:
            candidates = self._runner.step(question.next_ids, question.k)
        else:
            candidates = self._runner.step(question.next_ids, question.k, question.wanted)
        times.note(1)
        with self._state:
            return self._search.advance(candidates)

    def _multi_step(self, next_ids: Ints, most: int, times: _StepTimes) -> Advance:
        def go_on(steps: int) -> bool:
            return not self._is_called(times.note(steps))

        steps = self._runner.multi_step(next_ids, most, self._search.rules.eos_id, go_on)
        with self._state:
            return self._search.advance_many(steps)

    def _answer(self, advance: Advance) -> None:
        """Stream tokens, and answer the jobs that finished."""
        for job, tokens in advance.emissions:
            _stream(job, tokens)
        if advance.finished:
            now = self._clock()
            self._queue.retire(self._number, [each.job for each in advance.finished])
            self._changed = True
            for each in advance.finished:
                self._drained_tokens += each.job.num_source_tokens
                _resolve(each.job, each.reason, each, now, self._observer)

    def abandon(self, error: Exception) -> None:
        """Fail all jobs of this loop, and empty its batch."""
        with self._state:
            self._search.clear()
        for job in self._queue.abandon(self._number):
            job.future.set_exception(error)
        try:
            self._runner.keep(np.zeros(0, np.int64))
        except Exception:
            log.exception("The runner could not drop its rows.")

    def snapshot(self) -> tuple[RowSnapshot, ...]:
        with self._state:
            active = self._search.active
            return tuple(
                RowSnapshot(job.serial, beam, job.options.beam_size, length, active[job].limit)
                for job, beam, length in self._search.rows()
            )


def _deadline_of(job: Job) -> float:
    return math.inf if job.deadline_at is None else job.deadline_at


def _stream(job: Job, tokens: list[tuple[int, float]]) -> None:
    assert job.on_token is not None
    try:
        for token, log_prob in tokens:
            job.on_token(token, log_prob)
    except Exception as error:
        # The listener failed: its job fails too and leaves at the next step; the other jobs go on.
        job.future.set_exception(error)
        job.cancel()


def _resolve(job: Job, reason: FinishReason, finished: FinishedJob | None, now: float, observer: Observer) -> None:
    """Answer a job; without `finished` it never ran."""
    if finished is None:
        result = DecodingResult((), reason, queue_seconds=now - job.submitted_at)
    else:
        result = DecodingResult(
            finished.hypotheses,
            reason,
            queue_seconds=job.admitted_at - job.submitted_at,
            encode_seconds=job.encoded_at - job.admitted_at,
            decode_seconds=now - job.encoded_at,
            num_steps=finished.num_steps,
        )
    try:
        if finished is None:
            observer.finished(reason, 0, 0)
        else:
            observer.finished(reason, job.num_source_tokens, finished.num_tokens)
        if reason is FinishReason.CANCELLED:
            observer.cancelled()
    except Exception:
        log.exception("The observer failed. The job is answered anyway.")
    job.future.set_result(result)
