"""Decode nothing twice: remember results, and let equal decode requests share one decode.

Requests with equal keys have equal results. A request for a unit that is being decoded waits for that decode. The
decode lasts until the latest deadline of its waiters, takes its turn with the smallest request that waits, and ends
when nobody waits any more. If the engine refuses a request's decodes, the request leaves them; those that others have
joined meanwhile go on. Only translations that ended with eos are remembered.

Engine threads and event loops meet here. One lock guards all state. Nothing slow happens under it, and promises are
settled after it is released. Listeners of a stream are called under it, so that a replay and new tokens keep their
order; a listener must only hand the token on.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from dragoman.service.engine.job import DecodingResult, FinishReason, Hypothesis, Job
from dragoman.service.engine.loop import Engine
from dragoman.service.engine.promise import Promise
from dragoman.service.translation.decode_request import DecodeKey, DecodeRequest

LookupResult = Literal["hit", "miss", "shared"]
# What Python keeps for an entry and for each number in it: measured roughly, and rounded up.
_ENTRY_BYTES, _NUMBER_BYTES = 1200, 36


@dataclass(eq=False)
class _SharedDecode:
    """A decode under way, and all requests that wait for it."""

    engine: Engine
    first: DecodeRequest  # the first waiter; the others have the same key
    owner_tokens: int  # of the waiter whose turn it takes
    waiters: list[DecodeRequest] = field(default_factory=list)
    heard: dict[Job, list[tuple[int, float]]] = field(default_factory=dict)  # a job may speak before it takes over
    job: Job = field(init=False)

    @property
    def tokens(self) -> list[tuple[int, float]]:
        return self.heard.get(self.job, [])


class ResultStore:
    """Results that ended with eos, within a budget of bytes; the least recently used go first. Not thread-safe."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._results: OrderedDict[DecodeKey, DecodingResult] = OrderedDict()  # least recently used first
        self.num_bytes = 0

    def keys(self) -> list[DecodeKey]:
        return list(self._results)

    def get(self, key: DecodeKey) -> DecodingResult | None:
        result = self._results.get(key)
        if result is not None:
            self._results.move_to_end(key)
        return result

    def put(self, key: DecodeKey, result: DecodingResult) -> None:
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
        share_decodes: bool = True,
        looked_up: Callable[[LookupResult], None] = lambda result: None,
    ) -> None:
        """`max_bytes` 0 remembers nothing; `looked_up` is told the result of every lookup."""
        self._clock, self._share_decodes, self._looked_up = clock, share_decodes, looked_up
        self._lock = threading.Lock()
        self._store = ResultStore(max_bytes)
        self._under_way: dict[DecodeKey, _SharedDecode] = {}
        self._decodes: dict[DecodeRequest, _SharedDecode] = {}  # that requests wait for

    @property
    def num_bytes(self) -> int:
        return self._store.num_bytes

    @property
    def num_decodes(self) -> int:
        """How many decodes are under way that others may join."""
        return len(self._under_way)

    def submit_all(self, engine: Engine, requests: Sequence[DecodeRequest]) -> None:
        """Answer each request or let it wait. All decodes that are needed begin; or none, and the refusal is raised."""
        started: list[_SharedDecode] = []
        for request in requests:
            decode = self._look_up(engine, request)
            if decode is not None:
                started.append(decode)
        jobs = [decode.job for decode in started]
        try:
            if jobs:  # a full queue refuses even an empty list, and hits need no queue
                engine.submit_all(jobs)
        except Exception:
            self._refuse(started, jobs, requests)
            raise
        for decode, job in zip(started, jobs, strict=True):
            self._follow(decode, job)
        for request in requests:
            request.promise.add_done_callback(partial(self._promise_settled, request))

    def _refuse(self, started: list[_SharedDecode], jobs: list[Job], requests: Sequence[DecodeRequest]) -> None:
        """The refused requests leave; a decode that others have joined meanwhile is submitted again for them."""
        for request in requests:
            self.leave(request)
        for decode, refused in zip(started, jobs, strict=True):
            with self._lock:
                is_wanted = bool(decode.waiters) and decode.job is refused
                if is_wanted:
                    self._renew_job(decode)
            if is_wanted:
                self._submit_again(decode, decode.job)

    def leave(self, request: DecodeRequest) -> None:
        """Wait no longer. When the last waiter leaves, the decode ends."""
        with self._lock:
            abandoned = self._take_out(request)
        if abandoned is not None:
            abandoned.cancel()

    def expire(self, request: DecodeRequest) -> None:
        """The request's own deadline has passed while the decode goes on for others: it gets what there is so far.

        That is the tokens heard, if the decode streams, and otherwise nothing. Scores are plain sums here.
        """
        with self._lock:
            decode = self._decodes.get(request)
            if decode is None or not _is_later(decode.job.deadline_at, request.deadline_at):
                return  # answered already, or the engine itself will end it
            result = _result_so_far(decode)
            abandoned = self._take_out(request)
        if abandoned is not None:  # the waiter with the later deadline has left meanwhile
            abandoned.cancel()
        _settle(request, result)

    # Joining

    def _look_up(self, engine: Engine, request: DecodeRequest) -> _SharedDecode | None:
        """Answer the request or let it join a decode; otherwise return a new decode, to be submitted."""
        started = overtaken = None
        with self._lock:
            result = self._store.get(request.key)
            decode = self._under_way.get(request.key) if self._share_decodes else None
            if result is None and decode is not None:
                overtaken = self._join(decode, request)
            elif result is None:
                started = _SharedDecode(engine, request, request.owner_tokens)
                started.job = self._new_job(started, request, request.deadline_at)
                self._add_waiter(started, request)
                if self._share_decodes:
                    self._under_way[request.key] = started
        if result is not None:
            _settle(request, result)
        if decode is not None and overtaken is not None:
            self._overtake(decode, overtaken, request)
        self._looked_up("hit" if result is not None else "miss" if started else "shared")
        return started

    def _join(self, decode: _SharedDecode, request: DecodeRequest) -> Job | None:
        """Wait for a decode under way. Returns its job if a job of the request's own would be done sooner."""
        self._add_waiter(decode, request)
        if _is_later(request.deadline_at, decode.job.deadline_at):
            decode.job.deadline_at = request.deadline_at  # a running job looks at it before every step
        return decode.job if _may_overtake(request.owner_tokens, decode, decode.job) else None

    def _add_waiter(self, decode: _SharedDecode, request: DecodeRequest) -> None:
        decode.waiters.append(request)
        self._decodes[request] = decode
        _tell([request], decode.tokens)

    def _overtake(self, decode: _SharedDecode, waiting: Job, request: DecodeRequest) -> None:
        """Give the decode the turn of a smaller translation request, unless it has moved on meanwhile."""
        job = self._new_job(decode, request, waiting.deadline_at)
        try:
            decode.engine.submit(job)
        except Exception:
            return  # it keeps the turn that it has
        with self._lock:
            took_over = bool(decode.waiters) and _may_overtake(request.owner_tokens, decode, waiting)
            if took_over:
                decode.job, decode.owner_tokens = job, request.owner_tokens
                _tell(decode.waiters, decode.tokens)  # what it said before it took over: the other job said nothing
        decode.engine.replace(waiting if took_over else job)
        self._follow(decode, job)

    # Decoding

    def _renew_job(self, decode: _SharedDecode) -> None:
        """Under the lock: a new job for the present waiters, with the turn of the smallest of them."""
        smallest = min(decode.waiters, key=lambda request: request.owner_tokens)
        latest = _latest([request.deadline_at for request in decode.waiters])
        decode.job = self._new_job(decode, smallest, latest)
        decode.owner_tokens = smallest.owner_tokens

    def _new_job(self, decode: _SharedDecode, request: DecodeRequest, deadline_at: float | None) -> Job:
        job = Job(request.unit.source_ids, request.options, request.owner, deadline_at)
        # Listening costs the engine something, so only if the first waiter streams.
        if decode.first.on_token is not None and request.options.beam_size == 1:
            job.on_token = partial(self._hear, decode, job)
        return job

    def _hear(self, decode: _SharedDecode, job: Job, token_id: int, log_prob: float) -> None:
        with self._lock:
            decode.heard.setdefault(job, []).append((token_id, log_prob))
            if decode.job is job:
                _tell(decode.waiters, [(token_id, log_prob)])

    def _take_out(self, request: DecodeRequest) -> Job | None:
        """Under the lock. Returns the job if nobody waits for it any more."""
        decode = self._decodes.pop(request, None)
        if decode is None:
            return None
        decode.waiters.remove(request)
        if decode.waiters:
            return None
        self._close(decode)
        return decode.job

    def _close(self, decode: _SharedDecode) -> None:
        if self._under_way.get(decode.first.key) is decode:
            del self._under_way[decode.first.key]

    # Ending

    def _follow(self, decode: _SharedDecode, job: Job) -> None:
        job.future.add_done_callback(partial(self._job_done, decode, job))

    def _job_done(self, decode: _SharedDecode, job: Job, future: Promise[DecodingResult]) -> None:
        error = future.exception() if not future.cancelled() else None
        result = future.result() if error is None and not future.cancelled() else None
        with self._lock:
            if decode.job is not job:
                return  # another job has taken its place
            in_time = self._in_time(decode) if result is not None and _expired_in_queue(result) else []
            done = [request for request in decode.waiters if request not in in_time]
            for request in done:
                del self._decodes[request]
            decode.waiters = in_time
            if in_time:
                self._renew_job(decode)
            else:
                self._close(decode)
                if result is not None:
                    self._store.put(decode.first.key, result)
        for request in done:
            _settle(request, result, error)
        if in_time:
            self._submit_again(decode, decode.job)

    def _in_time(self, decode: _SharedDecode) -> list[DecodeRequest]:
        """The queue knows a job's first deadline only; waiters that joined later with a later one still have time."""
        now = self._clock()
        return [request for request in decode.waiters if _is_later(request.deadline_at, now)]

    def _submit_again(self, decode: _SharedDecode, job: Job) -> None:
        try:
            decode.engine.submit(job)
        except Exception as error:
            self._fail(decode, error)
        else:
            self._follow(decode, job)

    def _fail(self, decode: _SharedDecode, error: BaseException) -> None:
        """The decode was refused: tell all waiters."""
        with self._lock:
            self._close(decode)
            waiters, decode.waiters = decode.waiters, []
            for request in waiters:
                del self._decodes[request]
        for request in waiters:
            _settle(request, None, error)

    def _promise_settled(self, request: DecodeRequest, promise: Promise[DecodingResult]) -> None:
        if promise.cancelled():
            self.leave(request)


def _may_overtake(owner_tokens: int, decode: _SharedDecode, job: Job) -> bool:
    """Whether a translation request of so many tokens would have the result sooner with a job of its own.

    That is so while the job waits with a larger request, and for an interactive request also while the job runs as bulk
    work: bulk rows may pause for as long as interactive rows run. But not once a listener has heard a token: a stream
    takes nothing back.
    """
    if decode.job is not job or owner_tokens >= decode.owner_tokens:
        return False
    if not job.admitted_at:
        return True
    return job.bulk and not decode.tokens and not decode.engine.is_bulk(owner_tokens)


def _tell(requests: Sequence[DecodeRequest], tokens: Sequence[tuple[int, float]]) -> None:
    for request in requests:
        if request.on_token is not None:
            for token_id, log_prob in tokens:
                request.on_token(token_id, log_prob)


def _num_bytes(key: DecodeKey, result: DecodingResult) -> int:
    _, source_ids, options, _ = key
    numbers = len(source_ids) + len(options.prefix_ids)
    numbers += sum(len(hypothesis.ids) + len(hypothesis.log_probs) for hypothesis in result.hypotheses)
    return _ENTRY_BYTES + len(result.hypotheses) * 200 + _NUMBER_BYTES * numbers


def _is_later(deadline_at: float | None, other: float | None) -> bool:
    """None is no deadline: later than any other."""
    return other is not None and (deadline_at is None or deadline_at > other)


def _latest(deadlines: Sequence[float | None]) -> float | None:
    known = [deadline_at for deadline_at in deadlines if deadline_at is not None]
    return max(known) if len(known) == len(deadlines) else None


def _expired_in_queue(result: DecodingResult) -> bool:
    return result.finish_reason is FinishReason.DEADLINE and not result.hypotheses


def _result_so_far(decode: _SharedDecode) -> DecodingResult:
    if not decode.tokens:
        return DecodingResult((), FinishReason.DEADLINE)
    ids, log_probs = zip(*decode.tokens, strict=True)
    wanted = log_probs if decode.first.options.log_probs else ()
    hypothesis = Hypothesis(ids, sum(log_probs), wanted, False, FinishReason.DEADLINE)
    return DecodingResult((hypothesis,), FinishReason.DEADLINE)


def _settle(request: DecodeRequest, result: DecodingResult | None, error: BaseException | None = None) -> None:
    if result is not None:
        request.promise.set_result(result)
    elif error is not None:
        request.promise.set_exception(error)
    else:
        request.promise.cancel()
