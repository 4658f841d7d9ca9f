"""The open-loop generator: its clock is drawn beforehand and nothing that a server does can change it."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import pytest

from bench.load import GIVE_UP_SECONDS, Plan, Probe, poisson, probe

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
REFUSAL = b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 0\r\n\r\n"
REQUEST = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"


class Talker(asyncio.Protocol):
    def __init__(self, answer: bytes | None) -> None:
        self.answer = answer
        self.gone = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self.answer is not None:
            self.transport.write(self.answer)

    def connection_lost(self, error: Exception | None) -> None:
        self.gone.set_result(None)


@asynccontextmanager
async def server(answer: bytes | None) -> AsyncIterator[int]:
    """Answers every request alike; with None it never does."""
    talkers: list[Talker] = []

    def talker() -> Talker:
        talkers.append(Talker(answer))
        return talkers[-1]

    async with await asyncio.get_running_loop().create_server(talker, "127.0.0.1", 0) as listener:
        yield listener.sockets[0].getsockname()[1]
        await asyncio.gather(*(one.gone for one in talkers))


def plan(count: int) -> Plan:
    return Plan(1000.0, [i / 1000 for i in range(count)], [REQUEST] * count)


def test_arrivals_come_at_their_rate_and_from_their_seed() -> None:
    """Both servers of a pair must see the same arrivals, and as many as the rate says."""
    times = poisson(200.0, 50.0, 1_000_000, seed=3)
    assert times == poisson(200.0, 50.0, 1_000_000, seed=3)
    assert times != poisson(200.0, 50.0, 1_000_000, seed=4)
    assert times == sorted(times)
    assert len(times) == pytest.approx(10_000, rel=0.05)
    gaps = [b - a for a, b in itertools.pairwise(times)]
    mean = sum(gaps) / len(gaps)
    variance = sum((gap - mean) ** 2 for gap in gaps) / len(gaps)
    assert variance == pytest.approx(mean**2, rel=0.1)  # exponential gaps: bursts are part of it


def test_a_plan_is_bounded() -> None:
    """A search that doubles its rate must not end in a million requests."""
    assert len(poisson(1e6, 60.0, 500, seed=1)) == 500


async def test_every_answer_is_counted_once() -> None:
    """Connections are reused and opened while others are busy; no answer may be lost or counted twice."""
    async with server(ANSWER) as port:
        found = await probe(port, plan(120), warm_connections=2)
    assert (len(found.latencies), found.errors, found.unanswered) == (120, 0, 0)
    assert all(latency < GIVE_UP_SECONDS for latency in found.latencies)


async def test_a_refusal_is_a_miss() -> None:
    """A server that refuses at once must not look fast."""
    async with server(REFUSAL) as port:
        found = await probe(port, plan(20))
    assert found.errors == 20
    assert found.percentile(50) == GIVE_UP_SECONDS
    assert not found.meets(0.5)


async def test_nobody_listening_is_a_miss() -> None:
    """A dead server must not hang the search."""
    async with server(ANSWER) as port:
        pass
    found = await probe(port, plan(3))
    assert found.errors == 3


async def test_a_silent_server_ends_the_probe_early() -> None:
    """Once the limit is certain to be missed, the rest of the probe would only cost time."""
    async with server(None) as port:
        found = await probe(port, plan(200), limit_seconds=0.01)
    assert found.stopped_early
    assert not found.meets(10.0)
    assert found.unanswered > 2


def test_a_probe_whose_generator_lagged_is_void() -> None:
    """Late sending is the generator's fault, not the server's."""
    assert Probe(10.0, [0.1], 0, 0, lag=0.2, cpu_share=1.0).void
    assert not Probe(10.0, [0.1], 0, 0, lag=0.001, cpu_share=0.1).void
