"""The queue that all decode loops share: the scheduler behind a lock, and waiting for work.

`scheduler` has the policy; `loop` runs the jobs that have joined a batch.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from dragoman.service.engine.job import EngineStopped, Job
from dragoman.service.engine.scheduler import Scheduler, Turn


class Joined(NamedTuple):
    """The queue's answer to a loop that asks which jobs join its batch."""

    expired: list[Job]  # queued jobs whose deadline has passed
    jobs: list[Job]  # that join the loop's batch
    step_limit: int  # rows of it that may step
    ask_again_at: float  # the next deadline of a queued job, or infinity
    ask_again: bool  # in the next turn: more jobs might join
    news: int  # the queue's count of news at this moment


class SharedQueue:
    """The scheduler behind a lock, and waiting for work."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)  # only to wait and to wake: taking the lock itself is cheaper
        self._accepting = True
        self._draining = True
        self.num_cancelled = 0  # running jobs, ever: a loop that sees a new number looks for cancelled jobs of its own
        self.news = 0  # offers, cancellations and stops, ever: a loop that sees a new number ends its multi-step

    def offer(self, jobs: Sequence[Job]) -> None:
        with self._lock:
            if not self._accepting:
                raise EngineStopped("The engine is stopping and takes no more jobs.")
            self._scheduler.offer(jobs)
            self.news += 1
            self._changed.notify_all()

    def withdraw(self, job: Job) -> bool:
        """Take a cancelled job out of the queue; False when it is running or finished."""
        with self._lock:
            queued = self._scheduler.withdraw(job)
            self.num_cancelled += not queued
            self.news += not queued
            return queued

    def wait(self, loop: int) -> bool:
        """Wait until this loop has something to do; False when it never will again."""
        with self._lock:
            while not self._scheduler.has_queued and not self._scheduler.is_running(loop) and self._accepting:
                self._changed.wait()
            busy = self._scheduler.has_queued or self._scheduler.is_running(loop)
            return busy and (self._accepting or self._draining)

    def join(self, loop: int, now: float, turns: Iterable[Turn]) -> Joined:
        """The jobs that join this loop's batch; the scheduler learns from the loop's last turns."""
        scheduler = self._scheduler
        with self._lock:
            for turn in turns:
                scheduler.note_turn(loop, turn)
            expired, jobs = scheduler.expire(now), scheduler.admit(loop)
            # If no job could join, none can until a job leaves or comes, or the step times change.
            ask_again = bool(jobs) and scheduler.has_queued
            self.news += ask_again  # other loops may have another first job now
            return Joined(expired, jobs, scheduler.step_limit(loop), scheduler.next_deadline_at, ask_again, self.news)

    def retire(self, loop: int, jobs: Iterable[Job]) -> None:
        with self._lock:
            for job in jobs:
                self._scheduler.retire(loop, job)

    def abandon(self, loop: int) -> list[Job]:
        """Drop the jobs that this loop runs, and once the engine has stopped the queued ones too."""
        with self._lock:
            running = self._scheduler.running(loop)
            for job in running:
                self._scheduler.retire(loop, job)
            return running if self._accepting or self._draining else running + self._scheduler.withdraw_all()

    def stop(self, drain: bool) -> None:
        with self._lock:
            self._accepting = False
            self._draining = drain
            self.news += 1
            self._changed.notify_all()

    def oldest_work_at(self, loop: int) -> float | None:
        """When the oldest job was submitted that this loop runs or could take; None when there is none."""
        with self._lock:
            return self._scheduler.oldest_work_at(loop)

    def measure(self) -> tuple[int, int, int, float | None]:
        """Queued segments, queued tokens, running segments, tokens per second."""
        with self._lock:
            scheduler = self._scheduler
            return (
                scheduler.queued_segments,
                scheduler.queued_tokens,
                scheduler.num_running,
                scheduler.drain_tokens_per_second,
            )
