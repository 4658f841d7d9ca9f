"""Requests that are slow, huge or broken off, on a real server and a bare socket."""

import asyncio
import json
import threading
from functools import partial

import pytest

from dragoman.service.api.dialects import native
from dragoman.service.api.edge_limits import EdgeLimits
from dragoman.service.api.sse import EventStream
from tests.api.conftest import OpenServer, open_http
from tests.api.fakes import FakeTranslator
from tests.api.wire import Wire

ASKED = {"text": "gato", "source": "pt", "target": "en"}
HEAD = b"POST /v1/translate HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\n"


async def test_a_body_that_comes_too_slowly_is_refused(open_server: OpenServer) -> None:
    """A client that sends a byte a minute must not hold anything but its own connection."""
    with open_server(limits=EdgeLimits(body_timeout_seconds=0.2)) as url:
        async with Wire.open(url) as wire:
            await wire.send(HEAD + b'Content-Length: 100\r\n\r\n{"text":')
            answer = await wire.answer()
            assert (answer.status, answer.json()["reason"]) == (408, "slow_body")
            assert answer.headers["connection"] == "close"
            assert await wire.ended()


async def test_headers_that_come_too_slowly_are_hung_up_on(open_server: OpenServer) -> None:
    """A connection that never asks anything is closed, also on its second request."""
    with open_server(limits=EdgeLimits(header_timeout_seconds=0.2)) as url:
        async with Wire.open(url) as silent:
            assert (await silent.answer()).status == 408
            assert await silent.ended()
        async with Wire.open(url) as second:
            await second.post("/v1/translate", ASKED)
            assert (await second.answer()).status == 200
            await second.send(b"POST /v1/tra")
            assert (await second.answer()).status == 408


async def test_headers_that_are_too_long_are_refused(open_server: OpenServer) -> None:
    """In the shape of the API, when they end."""
    with open_server(limits=EdgeLimits(max_header_bytes=4096)) as url:
        async with Wire.open(url) as wire:
            await wire.send(b"GET /v2/usage HTTP/1.1\r\nHost: test\r\nX-Long: " + b"a" * 5000 + b"\r\n\r\n")
            answer = await wire.answer()
    assert (answer.status, sorted(answer.json())) == (431, ["detail", "message"])


async def test_headers_that_never_end_are_hung_up_on(open_server: OpenServer) -> None:
    """They would otherwise be collected for ever."""
    with open_server(limits=EdgeLimits(max_header_bytes=4096)) as url:
        async with Wire.open(url) as wire:
            await wire.send(b"GET /v2/usage HTTP/1.1\r\nHost: test\r\nX-Long: " + b"a" * 5000)
            assert (await wire.answer()).status == 431
            assert await wire.ended()


async def test_a_large_body_is_refused_politely(open_server: OpenServer) -> None:
    """Ten megabytes sent in one go get an answer, not a reset connection."""
    with open_server() as url:
        async with open_http() as client:
            response = await client.post(f"{url}/v1/translate", content=b"x" * 10_000_000)
    assert response.status_code == 413


async def test_who_asks_before_sending_is_told_at_once(open_server: OpenServer) -> None:
    """`Expect: 100-continue` exists so that ten megabytes need not be sent to be refused."""
    with open_server() as url:
        async with Wire.open(url) as wire:
            await wire.send(HEAD + b"Expect: 100-continue\r\nContent-Length: 10000000\r\n\r\n")
            assert (await wire.answer()).status == 413
        async with Wire.open(url) as wire:
            await wire.send(HEAD + b"Expect: 100-continue\r\nContent-Length: 29\r\n\r\n")
            assert await wire.read_until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            await wire.send(b'{"text": "a", "target": "en"}')
            assert (await wire.answer()).status == 200


async def test_garbage_is_a_bad_request(open_server: OpenServer) -> None:
    """What is not HTTP at all does not disturb the server."""
    with open_server() as url:
        async with Wire.open(url) as wire:
            await wire.send(b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n")
            assert (await wire.answer()).status == 400


@pytest.mark.parametrize("requests", [1, 2])
async def test_a_caller_who_leaves_cancels_the_work(
    open_server: OpenServer, translator: FakeTranslator, requests: int
) -> None:
    """Rows of the batch are for those who still wait; also when he had another question after the one in work."""
    started, cancelled = threading.Event(), threading.Event()

    async def wait_forever() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    translator.before = wait_forever
    with open_server() as url:
        async with Wire.open(url) as wire:
            await wire.post("/v1/translate", ASKED)
            assert await asyncio.to_thread(started.wait, 10)
            for _ in range(1, requests):  # the server has long begun to listen for a hang-up
                await wire.post("/v1/translate", ASKED)
        assert await asyncio.to_thread(cancelled.wait, 10)
        translator.before = _at_once
        async with open_http() as client:
            text = (await client.get(f"{url}/metrics")).text
    assert 'dragoman_requests_total{api="native",outcome="cancelled"} 1.0' in text


async def test_a_caller_who_leaves_a_stream_cancels_the_work(
    open_server: OpenServer, translator: FakeTranslator
) -> None:
    """Also in the middle of a stream, where no route is waiting any more."""
    cancelled = threading.Event()
    turns = 0

    async def wait_after_the_first_token() -> None:
        nonlocal turns
        turns += 1
        if turns < 2:
            return
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    translator.before = wait_after_the_first_token
    with open_server() as url:
        async with Wire.open(url) as wire:
            await wire.post("/v1/translate/stream", ASKED)
            await wire.read_until(b"event: token")
        assert await asyncio.to_thread(cancelled.wait, 10)
    assert translator.num_cancelled == 1


async def _at_once() -> None:
    pass


async def test_a_body_that_breaks_off_costs_nothing(open_server: OpenServer, translator: FakeTranslator) -> None:
    """A client that dies while it sends never reaches the translator."""
    with open_server() as url:
        async with Wire.open(url) as wire:
            await wire.send(HEAD + b'Content-Length: 100\r\n\r\n{"text":')
        async with open_http() as client:
            assert (await client.post(f"{url}/v1/translate", json=ASKED)).status_code == 200
    assert len(translator.orders) == 1


async def test_pipelined_requests_are_answered_in_order(open_server: OpenServer) -> None:
    """Listening for a caller who leaves must not swallow the next request on the connection."""
    with open_server() as url:
        async with Wire.open(url) as wire:
            for text in ("um", "dois", "três"):
                await wire.post("/v1/translate", {**ASKED, "text": text})
            answers = [(await wire.answer()).json()["translations"][0]["text"] for _ in range(3)]
    assert answers == ["mu", "siod", "sêrt"]


async def test_headers_that_come_with_the_end_of_a_large_body_are_not_counted_as_large(open_server: OpenServer) -> None:
    """A pipelined request whose first bytes came along with another's body was refused for that body's size."""
    first, second = ({**ASKED, "text": text} for text in ("gato " * 2000, "dois"))
    bodies = [json.dumps(each).encode() for each in (first, second)]
    requests = [HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body for body in bodies]
    with open_server(limits=EdgeLimits(max_header_bytes=4096)) as url:
        async with Wire.open(url) as wire:
            await wire.send(requests[0] + requests[1][:20])
            assert (await wire.answer()).status == 200
            await wire.send(requests[1][20:])
            assert (await wire.answer()).json()["translations"][0]["text"] == "siod"


async def test_headers_wait_for_the_answers_before_them(open_server: OpenServer, translator: FakeTranslator) -> None:
    """Work that takes longer than headers may is no reason to cut its answer off, nor those that wait behind it."""

    async def longer_than_headers_may_take() -> None:
        await asyncio.sleep(0.3)

    translator.before = longer_than_headers_may_take
    body = json.dumps(ASKED).encode()
    request = HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body
    with open_server(limits=EdgeLimits(header_timeout_seconds=0.1)) as url:
        async with Wire.open(url) as wire:
            await wire.send(request * 2 + request[:20])
            statuses = [(await wire.answer()).status for _ in range(3)]
            assert await wire.ended()
    assert statuses == [200, 200, 408]


async def test_who_stops_reading_a_stream_is_let_go(
    open_server: OpenServer, translator: FakeTranslator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the work, its bundle and its text would be kept for as long as the connection lasts."""
    monkeypatch.setattr(native, "EventStream", partial(EventStream, write_seconds=0.1))
    with open_server(max_characters=400_000) as url:
        async with Wire.open(url) as wire:
            await wire.post("/v1/translate/stream", {**ASKED, "text": "a" * 400_000})
            await wire.read_until(b"event: token")
            async with asyncio.timeout(30), open_http() as client:
                counted = 'dragoman_requests_total{api="native",outcome="cancelled"} 1.0'
                while counted not in (await client.get(f"{url}/metrics")).text:
                    pass
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await _read_to_the_end(wire)
    assert translator.num_cancelled == 1


async def _read_to_the_end(wire: Wire) -> None:
    while b"event: done" not in await wire.read_until(b"\n\n"):
        pass
