"""The queue that all decode loops share: the scheduler behind a lock, and the waiting for work.

The policy is left to `scheduler`; what becomes of a job once it has joined, to `loop`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from dragoman.service.engine.job import EngineStopped, Job
from dragoman.service.engine.scheduler import Scheduler, Turn


class Joined(NamedTuple):
    """The queue's answer to a loop that asks who joins."""

    expired: list[Job]  # queued jobs whose time is over
    jobs: list[Job]  # that join the loop's batch
    step_limit: int  # rows of it that may step
    ask_again_at: float  # a queued job's deadline, or never
    ask_again: bool  # in the next turn: more might join
    news: int  # that were known


class SharedQueue:
    """The scheduler behind a lock, and the waiting for work."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)  # only to wait and to wake: the lock itself is cheaper to take
        self._accepting = True
        self._draining = True
        self.num_cancelled = 0  # running jobs, ever: a loop that sees another number looks for its own
        self.news = 0  # offers, cancellations and stops, ever: a loop that sees another number interrupts its stride

    def offer(self, jobs: Sequence[Job]) -> None:
        with self._lock:
            if not self._accepting:
                raise EngineStopped("The engine is stopping and takes no more jobs.")
            self._scheduler.offer(jobs)
            self.news += 1
            self._changed.notify_all()

    def withdraw(self, job: Job) -> bool:
        """Take a cancelled job out of the queue; False when it runs, or is over."""
        with self._lock:
            queued = self._scheduler.withdraw(job)
            self.num_cancelled += not queued
            self.news += not queued
            return queued

    def wait(self, loop: int) -> bool:
        """Until this loop has something to do; False when it never will again."""
        with self._lock:
            while not self._scheduler.has_queued and not self._scheduler.is_running(loop) and self._accepting:
                self._changed.wait()
            busy = self._scheduler.has_queued or self._scheduler.is_running(loop)
            return busy and (self._accepting or self._draining)

    def join(self, loop: int, now: float, turns: Iterable[Turn]) -> Joined:
        """Who joins this loop's batch; learns from the loop's last turns."""
        scheduler = self._scheduler
        with self._lock:
            for turn in turns:
                scheduler.note_turn(loop, turn)
            expired, jobs = scheduler.expire(now), scheduler.admit(loop)
            # Where nobody could join, nobody can until somebody leaves, comes, or the pace changes.
            ask_again = bool(jobs) and scheduler.has_queued
            self.news += ask_again  # another loop's first in line may be another now
            return Joined(expired, jobs, scheduler.step_limit(loop), scheduler.next_deadline_at, ask_again, self.news)

    def retire(self, loop: int, jobs: Iterable[Job]) -> None:
        with self._lock:
            for job in jobs:
                self._scheduler.retire(loop, job)

    def abandon(self, loop: int) -> list[Job]:
        """Forget what this loop runs; once the engine has stopped, what is queued too."""
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
