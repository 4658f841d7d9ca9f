"""Open-loop load over HTTP: requests leave at times drawn beforehand, whether or not earlier ones were answered.

A latency counts from the time at which its request should have left, so neither a slow server nor a slow generator can
hide waiting ("coordinated omission"). What to ask, how fast, and what to conclude is left to others.

The client is a bare `asyncio.Protocol` over kept-alive connections with a parser in C, because a client that costs as
much as a server would measure itself; every probe says how late it sent and how much CPU it took all the same.
"""

import asyncio
import math
import random
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import httptools

from bench.harness import percentile

GIVE_UP_SECONDS = 10.0  # counts as the latency of an error and of an answer that never came
MAX_CONNECTIONS = 1024  # more would only wait in the server instead of here
LOOK_SECONDS = 0.05
MAX_LAG_SECONDS = 0.025  # of the 99th percentile; beyond it the generator was short of CPU and the probe says nothing


@dataclass(frozen=True)
class Plan:
    """When requests leave, in seconds from the start, and what is sent: whole HTTP requests."""

    rate: float
    at: Sequence[float]
    requests: Sequence[bytes]


def poisson(rate: float, seconds: float, max_count: int, seed: int) -> list[float]:
    """Arrival times of a Poisson process; at most so many, so that a high rate cannot take for ever."""
    draw, now = random.Random(seed), 0.0
    times: list[float] = []
    while len(times) < max_count and (now := now + draw.expovariate(rate)) < seconds:
        times.append(now)
    return times


@dataclass(frozen=True)
class Probe:
    """What one rate came to. `latencies` has one value for every request that was to be sent before the end."""

    rate: float
    latencies: Sequence[float]  # seconds
    errors: int  # answers other than 200, 429 too
    unanswered: int
    lag: float  # 99th percentile of sent - scheduled, seconds
    cpu_share: float  # of the generator
    stopped_early: bool = False

    def percentile(self, percent: int) -> float:
        """Seconds."""
        return percentile(self.latencies, percent) if self.latencies else GIVE_UP_SECONDS

    @property
    def void(self) -> bool:
        return self.lag > MAX_LAG_SECONDS

    def meets(self, limit_seconds: float) -> bool:
        return not self.stopped_early and self.percentile(99) <= limit_seconds


class Connection(asyncio.Protocol):
    """One kept-alive connection; one request at a time."""

    def __init__(self, released: Callable[["Connection"], None]) -> None:
        self._released = released
        self._done: Callable[[int], None] | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's own class, which is no subclass

    def send(self, request: bytes, done: Callable[[int], None]) -> None:
        """`done` is called with the status; 0 when the connection broke."""
        assert self._transport is not None
        self._done = done
        self._transport.write(request)

    @property
    def open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        status, done, self._done = self._parser.get_status_code(), self._done, None
        if not self._parser.should_keep_alive():
            self.close()
        if done is not None:
            done(status)
            self._released(self)

    def connection_lost(self, error: Exception | None) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(0)
            self._released(self)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


class Client:
    """Connections to one server, opened when all others are busy."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._idle: list[Connection] = []
        self._all: set[Connection] = set()
        self._opening: set[asyncio.Task[None]] = set()
        self._waiting: deque[tuple[bytes, Callable[[int], None]]] = deque()

    async def open(self, count: int) -> None:
        await asyncio.gather(*(self._connect() for _ in range(count)))

    def send(self, request: bytes, done: Callable[[int], None]) -> None:
        while self._idle:
            connection = self._idle.pop()
            if connection.open:
                connection.send(request, done)
                return
            self._all.discard(connection)
        self._waiting.append((request, done))
        if len(self._all) + len(self._opening) < MAX_CONNECTIONS:
            task = asyncio.ensure_future(self._connect())
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)

    async def close(self) -> None:
        self._waiting.clear()
        for task in self._opening:
            task.cancel()
        await asyncio.gather(*self._opening, return_exceptions=True)
        for connection in self._all:
            connection.close()

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            _, connection = await loop.create_connection(lambda: Connection(self._release), "127.0.0.1", self._port)
        except OSError:
            if self._waiting:
                self._waiting.popleft()[1](0)
            return
        self._all.add(connection)
        self._release(connection)

    def _release(self, connection: Connection) -> None:
        if not connection.open:
            self._all.discard(connection)
        elif self._waiting:
            connection.send(*self._waiting.popleft())
        else:
            self._idle.append(connection)


class _Tally:
    """Which requests of a plan were answered, when, and how."""

    def __init__(self, plan: Plan, started: float) -> None:
        self._due = [started + at for at in plan.at]
        self.latencies: list[float | None] = [None] * len(self._due)
        self.lags: list[float] = []
        self.errors = 0
        self._oldest = 0

    def sent(self, number: int) -> Callable[[int], None]:
        self.lags.append(time.perf_counter() - self._due[number])

        def done(status: int) -> None:
            good = status == 200
            self.errors += not good
            self.latencies[number] = time.perf_counter() - self._due[number] if good else GIVE_UP_SECONDS

        return done

    @property
    def finished(self) -> bool:
        return len(self.lags) == len(self._due) and None not in self.latencies

    def num_beyond(self, limit_seconds: float) -> int:
        """Requests that were late or still are."""
        now = time.perf_counter()
        ages = (
            now - due if latency is None else latency
            for due, latency in zip(self._due[: len(self.lags)], self.latencies, strict=False)
        )
        return sum(age > limit_seconds for age in ages)

    def all_latencies(self) -> list[float]:
        sent = self.latencies[: len(self.lags)]
        return [GIVE_UP_SECONDS if latency is None else latency for latency in sent]


async def probe(port: int, plan: Plan, limit_seconds: float | None = None, warm_connections: int = 32) -> Probe:
    """Send the plan. With a limit it stops as soon as more than one in a hundred is certain to miss it."""
    client = Client(port)
    await client.open(warm_connections)
    cpu, started = time.process_time(), time.perf_counter()
    tally = _Tally(plan, started)
    sender = asyncio.create_task(_send_all(client, plan, tally, started))
    stopped = await _watch(sender, tally, limit_seconds, math.ceil(len(plan.at) / 100))
    sender.cancel()
    await client.close()
    cpu_share = (time.process_time() - cpu) / (time.perf_counter() - started)
    latencies, lags = tally.all_latencies(), tally.lags or [0.0]
    unanswered = tally.latencies[: len(tally.lags)].count(None)
    return Probe(plan.rate, latencies, tally.errors, unanswered, percentile(lags, 99), cpu_share, stopped)


async def _send_all(client: Client, plan: Plan, tally: _Tally, started: float) -> None:
    for number, (at, request) in enumerate(zip(plan.at, plan.requests, strict=True)):
        early = started + at - time.perf_counter()
        if early > 0:
            await asyncio.sleep(early)
        client.send(request, tally.sent(number))


async def _watch(sender: "asyncio.Task[None]", tally: _Tally, limit_seconds: float | None, allowed: int) -> bool:
    """Until all is answered (False), or it is decided that the limit is missed (True), or it is hopeless (False)."""
    over_at: float | None = None
    while not tally.finished:
        await asyncio.sleep(LOOK_SECONDS)
        if limit_seconds is not None and tally.num_beyond(limit_seconds) > allowed:
            return True
        if sender.done():
            over_at = over_at or time.perf_counter()
            if time.perf_counter() - over_at > GIVE_UP_SECONDS:
                break
    return False
