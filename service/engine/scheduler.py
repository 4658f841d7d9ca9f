"""Pure policy: which jobs wait, which join a batch, which are refused; fair among requests, and by their deadlines.

No threads and no clock: `locked_scheduler` holds a lock around every call, and the time is an argument. What a row does
once it has joined is decided by `search`.

Requests share by virtual time: each job that joins moves its request's tag on by the job's cost, the least tag goes
next, and a new request starts with the tag of one that always had its fair share. So a bulk request cannot hold up an
interactive one, and many interactive requests cannot starve a bulk one. A request with many source tokens is *bulk*,
any other is *interactive*. Bulk requests leave some rows free for interactive ones, get fewer rows while those run
(`step_budget_seconds`; bulk rows beyond it pause), and join in groups of similar length, because padding is the largest
waste of an encoder. In the queue, bulk and interactive requests have a budget each, so that neither fills the queue for
the other.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dragoman.service.engine.job import Job, QueueFull
from dragoman.service.engine.pace import DrainRate, StepTimes

_MAX_PASSED_OVER = 32  # times that other jobs of a bulk request may go before its oldest one, for their length
_BULK_GROUPS = 8  # bulk requests join when an eighth of the rows is free
_NO_MEASURE_RETRY_SECONDS = 1.0

Entry = tuple[float, int]  # virtual tag, serial


@dataclass(frozen=True)
class EngineSettings:
    """The settings of an engine."""

    max_queued_tokens: int = 32_768  # of interactive requests, and as many of bulk requests
    encode_budget_tokens: int = 256  # source tokens encoded between two steps
    step_budget_seconds: float = 0.00015  # bulk rows beyond this pause while interactive rows run, except one group
    bulk_tokens: int = 512  # a request with more source tokens queued and running is bulk
    interactive_share: float = 0.125  # of the rows, never given to bulk requests
    max_batch_tokens: float = math.inf  # source tokens of all rows: larger caches may not fit in the processor's
    continuous: bool = True  # off: jobs join only an empty batch


class Turn(NamedTuple):
    """The measurements of a loop's turn that had rows."""

    rows: int
    step_seconds: float  # of one step, the mean where there were several
    drained_tokens: int  # source tokens of the jobs that ended
    seconds: float


class _Request:
    """The jobs of one request that are queued or running."""

    def __init__(self, key: Hashable) -> None:
        self.key = key
        self.queued: dict[int, Job] = {}  # by serial, oldest first
        self.num_running = 0
        self.num_passed_over = 0
        self.tokens = 0  # source tokens, queued and running
        self.queued_tokens = 0
        self.bulk = False
        self.tag = 0.0
        self.entry: Entry | None = None  # its entry in the heap; any other entry of it is stale
        self._by_length: dict[int, dict[int, Job]] = {}  # the queued ones again

    def enqueue(self, job: Job) -> None:
        self.queued[job.serial] = job
        self.queued_tokens += job.num_source_tokens
        self._by_length.setdefault(job.num_source_tokens, {})[job.serial] = job

    def dequeue(self, job: Job) -> None:
        del self.queued[job.serial]
        self.queued_tokens -= job.num_source_tokens
        same_length = self._by_length[job.num_source_tokens]
        del same_length[job.serial]
        if not same_length:
            del self._by_length[job.num_source_tokens]

    def oldest(self) -> Job:
        return next(iter(self.queued.values()))

    def nearest(self, length: int) -> Job:
        """The oldest of the jobs whose length is nearest."""
        if length not in self._by_length:
            length = min(self._by_length, key=lambda other: abs(other - length))
        return next(iter(self._by_length[length].values()))


class _RequestQueue:
    """The requests with queued jobs, all bulk or all interactive; the one with the least tag comes first."""

    def __init__(self) -> None:
        self._heap: list[tuple[Entry, _Request]] = []
        self.queued_tokens = 0

    def push(self, request: _Request, serial: int) -> None:
        request.entry = (request.tag, serial)
        heapq.heappush(self._heap, (request.entry, request))

    def first(self) -> _Request | None:
        while self._heap:
            entry, request = self._heap[0]
            if request.entry is entry and request.queued:
                return request
            heapq.heappop(self._heap)
            if request.entry is entry:
                request.entry = None
        return None

    def pop(self) -> None:
        _, request = heapq.heappop(self._heap)
        request.entry = None


class _Batch:
    """The running jobs of one decode loop; rows are reserved for whole beams."""

    def __init__(self, max_rows: int, max_tokens: float) -> None:
        self.max_rows, self.max_tokens = max_rows, max_tokens
        self.running: dict[Job, bool] = {}  # job -> counted as bulk
        self.bulk_rows = 0
        self.interactive_rows = 0
        self.tokens = 0  # source tokens, once for each row

    def has_room(self, job: Job) -> bool:
        """An empty batch takes whatever fits its rows: otherwise a long sentence might never run."""
        free_rows = self.max_rows - self.bulk_rows - self.interactive_rows
        fits = not self.running or self.tokens + _cost(job) <= self.max_tokens
        return fits and job.options.beam_size <= free_rows

    def join(self, job: Job) -> None:
        self._count(job, job.bulk, 1)
        self.running[job] = job.bulk

    def leave(self, job: Job) -> None:
        self._count(job, self.running.pop(job), -1)

    def _count(self, job: Job, bulk: bool, sign: int) -> None:
        rows = sign * job.options.beam_size
        self.tokens += sign * _cost(job)
        if bulk:
            self.bulk_rows += rows
        else:
            self.interactive_rows += rows


def _cost(job: Job) -> int:
    """Source tokens, once for each row."""
    return job.options.beam_size * job.num_source_tokens


class Scheduler:
    """One queue for the batches of all decode loops."""

    def __init__(self, settings: EngineSettings, max_rows: Sequence[int]) -> None:
        self.settings = settings
        self._queued: dict[int, Job] = {}  # by serial
        self._requests: dict[Hashable, _Request] = {}
        self._interactive, self._bulk = _RequestQueue(), _RequestQueue()
        self._deadlines: list[tuple[float, int]] = []  # heap of (deadline, serial), stale ones too
        self._batches = [_Batch(rows, settings.max_batch_tokens) for rows in max_rows]
        self._step_times = [StepTimes() for _ in max_rows]
        self._drain = DrainRate()
        self._num_backlogged = 0  # requests with queued jobs
        self._virtual_now = 0.0
        self._serial = 0

    @property
    def queued_tokens(self) -> int:
        return self._interactive.queued_tokens + self._bulk.queued_tokens

    @property
    def queued_segments(self) -> int:
        return len(self._queued)

    @property
    def has_queued(self) -> bool:
        return bool(self._queued)

    @property
    def drain_tokens_per_second(self) -> float | None:
        rate = self._drain.tokens_per_second
        return None if rate is None else rate * len(self._batches)

    @property
    def num_running(self) -> int:
        return sum(len(batch.running) for batch in self._batches)

    def is_running(self, loop: int) -> bool:
        return bool(self._batches[loop].running)

    def running(self, loop: int) -> list[Job]:
        return list(self._batches[loop].running)

    def oldest_work_at(self, loop: int) -> float | None:
        """When the oldest job was submitted that runs in this loop or is queued; None when there is none."""
        queued = list(itertools.islice(self._queued.values(), 1))  # oldest first
        return min((job.submitted_at for job in [*self._batches[loop].running, *queued]), default=None)

    # Into the queue, and out of it without running

    def offer(self, jobs: Sequence[Job]) -> None:
        """Queue all jobs or none.

        An empty queue takes an offer of any size: otherwise a large one would always be refused. So a queue holds at
        most its budget, or one larger offer, whose size the limit on a request's characters bounds.
        """
        for queue, tokens in self._queues_of(jobs):
            if queue.queued_tokens and queue.queued_tokens + tokens > self.settings.max_queued_tokens:
                raise QueueFull(self._retry_after_seconds(queue))
        for job in jobs:
            self._serial += 1
            job.serial = self._serial
            self._enqueue(job)

    def withdraw(self, job: Job) -> bool:
        """Take a job out of the queue; False when it is not there."""
        if self._queued.get(job.serial) is not job:
            return False
        request = self._requests[job.request]
        self._dequeue(request, job)
        self._forget(request, job)
        return True

    def expire(self, now: float) -> list[Job]:
        """Take out the queued jobs whose deadline has passed: they never run."""
        expired = []
        while self._deadlines and self._deadlines[0][0] <= now:
            _, serial = heapq.heappop(self._deadlines)
            if serial in self._queued:
                expired.append(self._queued[serial])
        for job in expired:
            self.withdraw(job)
        return expired

    @property
    def next_deadline_at(self) -> float:
        """When to look again for queued jobs that expired."""
        return self._deadlines[0][0] if self._deadlines else math.inf

    def withdraw_all(self) -> list[Job]:
        return [job for job in list(self._queued.values()) if self.withdraw(job)]

    # Into a batch, and out of it

    def admit(self, loop: int) -> list[Job]:
        """The jobs that join this loop's batch now."""
        if not self._queued:
            return []
        batch = self._batches[loop]
        budget: float = self.settings.encode_budget_tokens
        if not self.settings.continuous:
            if batch.running:
                return []
            budget = float("inf")  # no running job waits for the encoder
        bulk_open, bulk_budget = self._bulk_may_join(loop), budget
        if self.settings.continuous and self._has_interactive(batch):
            bulk_budget = budget / _BULK_GROUPS  # interactive rows wait while bulk sources are encoded
        joined: list[Job] = []
        while (request := self._next_request(bulk_open)) is not None:
            job = self._pick(request, joined)
            if request.bulk and self._holds_back(loop, job, bool(joined) and job.num_source_tokens > bulk_budget):
                bulk_open = False
                continue
            # A job that does not fit stays first: no other job takes rows before it has enough for its beam.
            if not batch.has_room(job) or (joined and job.num_source_tokens > budget):
                break
            budget -= job.num_source_tokens
            bulk_budget -= job.num_source_tokens if request.bulk else 0
            self._join(batch, request, job)
            joined.append(job)
        return joined

    def step_limit(self, loop: int) -> int:
        """How many rows may step together: interactive rows must not wait for all bulk rows of the batch."""
        batch = self._batches[loop]
        if not self.settings.continuous or not batch.interactive_rows or not batch.bulk_rows:
            return batch.max_rows
        return self._affordable(loop)

    def retire(self, loop: int, job: Job) -> None:
        """A running job has left its batch."""
        self._batches[loop].leave(job)
        request = self._requests[job.request]
        request.num_running -= 1
        self._forget(request, job)

    def note_turn(self, loop: int, turn: Turn) -> None:
        self._step_times[loop].note(turn.rows, turn.step_seconds)
        self._drain.note(turn.drained_tokens, turn.seconds)

    # Keeping count of the queue

    def _queues_of(self, jobs: Sequence[Job]) -> list[tuple[_RequestQueue, int]]:
        """The queues that the jobs would wait in, and their tokens in each; a request's earlier jobs count too."""
        offered: dict[Hashable, int] = {}
        for job in jobs:
            offered[job.request] = offered.get(job.request, 0) + job.num_source_tokens
        bulk = sum(tokens for key, tokens in offered.items() if self._would_be_bulk(key, tokens))
        both = ((self._bulk, bulk), (self._interactive, sum(offered.values()) - bulk))
        return [(queue, tokens) for queue, tokens in both if tokens]

    def _would_be_bulk(self, key: Hashable, more_tokens: int) -> bool:
        request = self._requests.get(key)
        if request is None:
            return more_tokens > self.settings.bulk_tokens
        return request.bulk or request.tokens + more_tokens > self.settings.bulk_tokens

    def _enqueue(self, job: Job) -> None:
        request = self._requests.setdefault(job.request, _Request(job.request))
        became_bulk = not request.bulk and self._would_be_bulk(request.key, job.num_source_tokens)
        if became_bulk:
            self._make_bulk(request)
        request.tokens += job.num_source_tokens
        self._num_backlogged += not request.queued
        request.enqueue(job)
        self._queued[job.serial] = job
        self._queue_of(request).queued_tokens += job.num_source_tokens
        if request.entry is None:
            request.tag = max(request.tag, self._virtual_now)
        if request.entry is None or became_bulk:
            self._queue_of(request).push(request, job.serial)
        if job.deadline_at is not None:
            self._push_deadline(job.deadline_at, job.serial)

    def _make_bulk(self, request: _Request) -> None:
        """Its queued jobs count as bulk from now on."""
        self._interactive.queued_tokens -= request.queued_tokens
        self._bulk.queued_tokens += request.queued_tokens
        request.bulk = True

    def _push_deadline(self, deadline_at: float, serial: int) -> None:
        heapq.heappush(self._deadlines, (deadline_at, serial))
        if len(self._deadlines) > 4 * len(self._queued) + 64:
            self._deadlines = [entry for entry in self._deadlines if entry[1] in self._queued]
            heapq.heapify(self._deadlines)

    def _dequeue(self, request: _Request, job: Job) -> None:
        del self._queued[job.serial]
        request.dequeue(job)
        self._queue_of(request).queued_tokens -= job.num_source_tokens
        self._num_backlogged -= not request.queued

    def _forget(self, request: _Request, job: Job) -> None:
        request.tokens -= job.num_source_tokens
        if not request.queued and not request.num_running:
            request.entry = None
            del self._requests[request.key]

    def _retry_after_seconds(self, queue: _RequestQueue) -> float:
        """When about half of the queue will be gone."""
        rate = self.drain_tokens_per_second
        return _NO_MEASURE_RETRY_SECONDS if rate is None else queue.queued_tokens / 2 / rate

    # Which job is next

    def _queue_of(self, request: _Request) -> _RequestQueue:
        return self._bulk if request.bulk else self._interactive

    def _next_request(self, bulk_open: bool) -> _Request | None:
        interactive = self._interactive.first()
        bulk = self._bulk.first() if bulk_open else None
        if interactive is None or bulk is None:
            return interactive or bulk
        return interactive if interactive.tag <= bulk.tag else bulk

    def _pick(self, request: _Request, joined: list[Job]) -> Job:
        """The request's oldest job; for a bulk request, one of similar length to the last that joined."""
        if joined and request.bulk and request.num_passed_over < _MAX_PASSED_OVER:
            return request.nearest(joined[-1].num_source_tokens)
        return request.oldest()

    def _join(self, batch: _Batch, request: _Request, job: Job) -> None:
        cost = _cost(job)
        self._virtual_now += cost / self._num_backlogged
        self._queue_of(request).pop()
        request.num_passed_over = 0 if job is request.oldest() else request.num_passed_over + 1
        self._dequeue(request, job)
        request.tag += cost
        request.num_running += 1
        if request.queued:
            self._queue_of(request).push(request, job.serial)
        job.bulk = request.bulk
        batch.join(job)

    def _has_interactive(self, batch: _Batch) -> bool:
        """Whether interactive jobs run in this batch or are queued."""
        return bool(batch.interactive_rows) or self._interactive.first() is not None

    def _holds_back(self, loop: int, job: Job, over_budget: bool) -> bool:
        """Whether a bulk job waits for a later turn: bulk requests have their rows, or encoded enough in this turn."""
        rows = self._batches[loop].bulk_rows
        return over_budget or (bool(rows) and rows + job.options.beam_size > self._bulk_cap(loop))

    def _bulk_cap(self, loop: int) -> int:
        """The rows that bulk requests may have in this batch."""
        batch = self._batches[loop]
        if not self.settings.continuous:
            return batch.max_rows
        cap = batch.max_rows - int(batch.max_rows * self.settings.interactive_share)
        if self._has_interactive(batch):
            cap = min(cap, self._affordable(loop) - batch.interactive_rows)
        return max(1, cap)

    def _affordable(self, loop: int) -> int:
        """The rows that a step can have within its budget; at least all interactive rows and one group of bulk rows."""
        batch = self._batches[loop]
        rows = self._step_times[loop].rows_within(self.settings.step_budget_seconds)
        group = max(1, batch.max_rows // _BULK_GROUPS)
        return batch.max_rows if rows is None else max(rows, batch.interactive_rows + group)

    def _bulk_may_join(self, loop: int) -> bool:
        """Bulk jobs join in groups: an encoder run of a few sources costs almost as much as one of many."""
        batch, cap = self._batches[loop], self._bulk_cap(loop)
        group = min(cap, max(1, batch.max_rows // _BULK_GROUPS))
        # Bulk requests without a row may always try, however many tokens the interactive rows have.
        has_tokens = not batch.bulk_rows or batch.tokens <= batch.max_tokens * (1 - 1 / _BULK_GROUPS)
        return not batch.running or (cap - batch.bulk_rows >= group and has_tokens)


def like_lengths(jobs: Iterable[Job]) -> list[list[Job]]:
    """Groups of jobs to encode together: at most about a fifth of each group is padding."""
    groups: list[list[Job]] = []
    for job in sorted(jobs, key=lambda job: job.num_source_tokens):
        if groups and 4 * job.num_source_tokens <= 5 * groups[-1][0].num_source_tokens + 8:
            groups[-1].append(job)
        else:
            groups.append([job])
    return groups
