"""Work that was done, or is being done, is not done again: an exact-match cache, and single flight.

A segment is known by its bundle, its ids, all its options and whose it is. Who asks for one that is being decoded
waits for that decode: it lasts until its latest waiter's deadline, takes the turn of the smallest request that waits,
and ends when nobody is left. A request that the engine refuses leaves; what others joined meanwhile goes on for them.
Only translations that ended by themselves are remembered.

Engine threads and event loops meet here. One lock guards all state; nothing slow happens under it, and futures are
resolved after it is released. Listeners of a stream are called under it, so that a replay and new tokens keep their
order; they must only hand the token over.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, NamedTuple

from dragoman.service.engine.job import DecodingOptions, DecodingResult, FinishReason, Hypothesis, Job
from dragoman.service.engine.loop import Engine
from dragoman.service.engine.promise import Promise

LookupResult = Literal["hit", "miss", "shared"]
# What Python keeps for an entry and for each number in it: measured roughly, and rounded up.
_ENTRY_BYTES, _NUMBER_BYTES = 1200, 36


class SegmentKey(NamedTuple):
    bundle: str  # its identity: equal only for equal files
    source_ids: tuple[int, ...]
    options: DecodingOptions
    tenant: str  # nobody learns from the speed of an answer what others have asked


class Order(NamedTuple):
    """A segment as somebody wants it."""

    key: SegmentKey
    request: Hashable = None  # fair-share key of the request that it belongs to
    request_tokens: int = 0  # source tokens of that request: the fewer, the sooner its turn
    deadline_at: float | None = None
    on_token: Callable[[int, float], None] | None = None


@dataclass(eq=False)
class Ticket:
    """One waiter's share in a decode; cancelling `future` gives it up."""

    order: Order
    future: Promise[DecodingResult] = field(default_factory=Promise)
    flight: "_Flight | None" = None  # while it waits


@dataclass(eq=False)
class _Flight:
    """A decode under way, and all who wait for it."""

    key: SegmentKey
    engine: Engine
    streams: bool  # listening costs the engine something, so only where the first waiter streams
    request_tokens: int
    tickets: list[Ticket] = field(default_factory=list)
    heard: dict[Job, list[tuple[int, float]]] = field(default_factory=dict)  # a job may speak before it takes over
    job: Job = field(init=False)

    @property
    def tokens(self) -> list[tuple[int, float]]:
        return self.heard.get(self.job, [])


class ResultStore:
    """Results that ended by themselves, within a budget of bytes; the least recently used go first. Not thread-safe."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._results: OrderedDict[SegmentKey, DecodingResult] = OrderedDict()  # least recently used first
        self.num_bytes = 0

    def keys(self) -> list[SegmentKey]:
        return list(self._results)

    def get(self, key: SegmentKey) -> DecodingResult | None:
        result = self._results.get(key)
        if result is not None:
            self._results.move_to_end(key)
        return result

    def put(self, key: SegmentKey, result: DecodingResult) -> None:
        size = _num_bytes(key, result)
        if result.finish_reason is not FinishReason.EOS or size > self._max_bytes:
            return
        if key in self._results:
            self.num_bytes -= _num_bytes(key, self._results.pop(key))
        self._results[key] = result._replace(queue_seconds=0.0, encode_seconds=0.0, decode_seconds=0.0)
        self.num_bytes += size
        while self.num_bytes > self._max_bytes:
            self.num_bytes -= _num_bytes(*self._results.popitem(last=False))


class SegmentCache:
    def __init__(
        self,
        max_bytes: int,
        clock: Callable[[], float],
        single_flight: bool = True,
        looked_up: Callable[[LookupResult], None] = lambda result: None,
    ) -> None:
        """`max_bytes` 0 remembers nothing; `looked_up` is told the outcome of every lookup."""
        self._clock, self._single_flight, self._looked_up = clock, single_flight, looked_up
        self._lock = threading.Lock()
        self._store = ResultStore(max_bytes)
        self._flights: dict[SegmentKey, _Flight] = {}

    @property
    def num_bytes(self) -> int:
        return self._store.num_bytes

    @property
    def num_flights(self) -> int:
        return len(self._flights)

    def board(self, engine: Engine, orders: Sequence[Order]) -> list[Ticket]:
        """A ticket for each order. All decodes that are needed begin, or none: then the engine's refusal is raised."""
        tickets = [Ticket(order) for order in orders]
        started = [flight for ticket in tickets if (flight := self._look_up(engine, ticket))]
        jobs = [flight.job for flight in started]
        try:
            if jobs:  # a full queue refuses even nothing, and hits need no queue
                engine.submit_all(jobs)
        except Exception:
            self._refuse(started, jobs, tickets)
            raise
        for flight, job in zip(started, jobs, strict=True):
            self._await_landing(flight, job)
        for ticket in tickets:
            ticket.future.add_done_callback(partial(self._future_done, ticket))
        return tickets

    def _refuse(self, started: list[_Flight], jobs: list[Job], tickets: list[Ticket]) -> None:
        """The request's own tickets leave; what others have joined meanwhile flies for them."""
        for ticket in tickets:
            self.leave(ticket)
        for flight, refused in zip(started, jobs, strict=True):
            with self._lock:
                stranded = bool(flight.tickets) and flight.job is refused
                if stranded:
                    self._book(flight)
            if stranded:
                self._fly_again(flight, flight.job)

    def leave(self, ticket: Ticket) -> None:
        """Wait no longer; the last one to leave ends the decode."""
        with self._lock:
            abandoned = self._take_out(ticket)
        if abandoned is not None:
            abandoned.cancel()

    def expire(self, ticket: Ticket) -> None:
        """The waiter's own deadline has passed while the decode goes on for others: it gets what there is so far.

        That is the tokens heard, if the decode streams, and otherwise nothing. Scores are plain sums here.
        """
        with self._lock:
            flight = ticket.flight
            if flight is None or not _is_later(flight.job.deadline_at, ticket.order.deadline_at):
                return  # answered already, or the engine itself will see to it
            result = _result_so_far(flight)
            abandoned = self._take_out(ticket)
        if abandoned is not None:  # it lasted for one who has left meanwhile
            abandoned.cancel()
        _resolve(ticket, result)

    # Boarding

    def _look_up(self, engine: Engine, ticket: Ticket) -> _Flight | None:
        """Answer the ticket, or let it join; else a flight that is to be submitted."""
        key = ticket.order.key
        started = overtaken = None
        with self._lock:
            result = self._store.get(key)
            flight = self._flights.get(key) if self._single_flight else None
            if result is None and flight is not None:
                overtaken = self._join(flight, ticket)
            elif result is None:
                started = self._start(engine, ticket)
        if result is not None:
            _resolve(ticket, result)
        if flight is not None and overtaken is not None:
            self._overtake(flight, overtaken, ticket.order)
        self._looked_up("hit" if result is not None else "miss" if started else "shared")
        return started

    def _start(self, engine: Engine, ticket: Ticket) -> _Flight:
        order = ticket.order
        flight = _Flight(order.key, engine, order.on_token is not None, order.request_tokens)
        flight.job = self._new_job(flight, order, order.deadline_at)
        self._seat(flight, ticket)
        if self._single_flight:
            self._flights[order.key] = flight
        return flight

    def _join(self, flight: _Flight, ticket: Ticket) -> Job | None:
        """Take a seat in a flight under way. Returns its job if the joiner's own would be done sooner."""
        order = ticket.order
        self._seat(flight, ticket)
        if _is_later(order.deadline_at, flight.job.deadline_at):
            flight.job.deadline_at = order.deadline_at  # a running job looks at it before every step
        return flight.job if _may_overtake(order.request_tokens, flight, flight.job) else None

    def _seat(self, flight: _Flight, ticket: Ticket) -> None:
        flight.tickets.append(ticket)
        ticket.flight = flight
        _tell([ticket], flight.tokens)

    def _overtake(self, flight: _Flight, waiting: Job, order: Order) -> None:
        """Give the flight a place in the line of a smaller request, unless it has moved on meanwhile."""
        job = self._new_job(flight, order, waiting.deadline_at)
        try:
            flight.engine.submit(job)
        except Exception:
            return  # it keeps the place that it has
        with self._lock:
            took_over = bool(flight.tickets) and _may_overtake(order.request_tokens, flight, waiting)
            if took_over:
                flight.job, flight.request_tokens = job, order.request_tokens
                _tell(flight.tickets, flight.tokens)  # what it said before: the other said nothing
        flight.engine.replace(waiting if took_over else job)
        self._await_landing(flight, job)

    # Flying

    def _book(self, flight: _Flight) -> None:
        """Under the lock: a new job for those who wait now, in the line of the smallest of their requests."""
        orders = [ticket.order for ticket in flight.tickets]
        smallest = min(orders, key=lambda order: order.request_tokens)
        flight.job = self._new_job(flight, smallest, _latest([order.deadline_at for order in orders]))
        flight.request_tokens = smallest.request_tokens

    def _new_job(self, flight: _Flight, order: Order, deadline_at: float | None) -> Job:
        job = Job(flight.key.source_ids, flight.key.options, order.request, deadline_at)
        if flight.streams and flight.key.options.beam_size == 1:
            job.on_token = partial(self._hear, flight, job)
        return job

    def _hear(self, flight: _Flight, job: Job, token_id: int, log_prob: float) -> None:
        with self._lock:
            flight.heard.setdefault(job, []).append((token_id, log_prob))
            if flight.job is job:
                _tell(flight.tickets, [(token_id, log_prob)])

    def _take_out(self, ticket: Ticket) -> Job | None:
        """Under the lock. Returns the job that nobody waits for any more."""
        flight, ticket.flight = ticket.flight, None
        if flight is None:
            return None
        flight.tickets.remove(ticket)
        if flight.tickets:
            return None
        self._close(flight)
        return flight.job

    def _close(self, flight: _Flight) -> None:
        if self._flights.get(flight.key) is flight:
            del self._flights[flight.key]

    # Landing

    def _await_landing(self, flight: _Flight, job: Job) -> None:
        job.future.add_done_callback(partial(self._landed, flight, job))

    def _landed(self, flight: _Flight, job: Job, future: Promise[DecodingResult]) -> None:
        error = future.exception() if not future.cancelled() else None
        result = future.result() if error is None and not future.cancelled() else None
        with self._lock:
            if flight.job is not job:
                return  # another job has taken its place
            in_time = self._in_time(flight) if result is not None and _expired_in_queue(result) else []
            done = [ticket for ticket in flight.tickets if ticket not in in_time]
            for ticket in done:
                ticket.flight = None
            flight.tickets = in_time
            if in_time:
                self._book(flight)
            else:
                self._close(flight)
                if result is not None:
                    self._store.put(flight.key, result)
        for ticket in done:
            _resolve(ticket, result, error)
        if in_time:
            self._fly_again(flight, flight.job)

    def _in_time(self, flight: _Flight) -> list[Ticket]:
        """The queue knows a job's first deadline only; those who joined afterwards with a later one still have time."""
        now = self._clock()
        return [ticket for ticket in flight.tickets if _is_later(ticket.order.deadline_at, now)]

    def _fly_again(self, flight: _Flight, job: Job) -> None:
        try:
            flight.engine.submit(job)
        except Exception as error:
            self._ground(flight, error)
        else:
            self._await_landing(flight, job)

    def _ground(self, flight: _Flight, error: BaseException) -> None:
        """It will not fly: tell all who wait."""
        with self._lock:
            self._close(flight)
            tickets, flight.tickets = flight.tickets, []
            for ticket in tickets:
                ticket.flight = None
        for ticket in tickets:
            _resolve(ticket, None, error)

    def _future_done(self, ticket: Ticket, future: Promise[DecodingResult]) -> None:
        if future.cancelled():
            self.leave(ticket)


def _may_overtake(request_tokens: int, flight: _Flight, job: Job) -> bool:
    """Whether a request of so many tokens would have the flight's answer sooner by a job of its own.

    So it is while the job waits in a longer line, and for a line also when it runs: a document's row may pause for as
    long as lines run. But not once somebody has heard of it: what was said cannot be taken back.
    """
    if flight.job is not job or request_tokens >= flight.request_tokens:
        return False
    if not job.admitted_at:
        return True
    return job.bulk and not flight.tokens and not flight.engine.is_bulk(request_tokens)


def _tell(tickets: Sequence[Ticket], tokens: Sequence[tuple[int, float]]) -> None:
    for ticket in tickets:
        if ticket.order.on_token is not None:
            for token_id, log_prob in tokens:
                ticket.order.on_token(token_id, log_prob)


def _num_bytes(key: SegmentKey, result: DecodingResult) -> int:
    numbers = len(key.source_ids) + len(key.options.prefix_ids)
    numbers += sum(len(hypothesis.ids) + len(hypothesis.log_probs) for hypothesis in result.hypotheses)
    return _ENTRY_BYTES + len(result.hypotheses) * 200 + _NUMBER_BYTES * numbers


def _is_later(deadline_at: float | None, other: float | None) -> bool:
    """None is never: later than any moment."""
    return other is not None and (deadline_at is None or deadline_at > other)


def _latest(deadlines: Sequence[float | None]) -> float | None:
    known = [deadline_at for deadline_at in deadlines if deadline_at is not None]
    return max(known) if len(known) == len(deadlines) else None


def _expired_in_queue(result: DecodingResult) -> bool:
    return result.finish_reason is FinishReason.DEADLINE and not result.hypotheses


def _result_so_far(flight: _Flight) -> DecodingResult:
    if not flight.tokens:
        return DecodingResult((), FinishReason.DEADLINE)
    ids, log_probs = zip(*flight.tokens, strict=True)
    wanted = log_probs if flight.key.options.log_probs else ()
    return DecodingResult(
        (Hypothesis(ids, sum(log_probs), wanted, False, FinishReason.DEADLINE),), FinishReason.DEADLINE
    )


def _resolve(ticket: Ticket, result: DecodingResult | None, error: BaseException | None = None) -> None:
    if result is not None:
        ticket.future.set_result(result)
    elif error is not None:
        ticket.future.set_exception(error)
    else:
        ticket.future.cancel()
