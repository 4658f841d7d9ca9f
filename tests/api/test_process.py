"""Signals sent to a real server process."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import httpx
import pytest

from dragoman.service.api.keys import Key, digest, write_keys
from tests.api.conftest import open_http

ASKED = {"text": "gato", "source": "pt", "target": "en"}
ROOT = Path(__file__).parents[2]


class Process:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.url = ""

    def send(self, sig: signal.Signals) -> None:
        self._process.send_signal(sig)

    async def exit_code(self) -> int:
        return await asyncio.wait_for(self._process.wait(), 30)

    async def next_line(self) -> str:
        assert self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), 60)
        assert line, "the process ended"
        return line.decode().strip()

    async def begun(self) -> None:
        """Until the next translation has begun."""
        while await self.next_line() != "begun":
            pass


OpenProcess = Callable[..., AbstractAsyncContextManager[Process]]


@pytest.fixture
def open_process() -> OpenProcess:
    @asynccontextmanager
    async def start(seconds: float = 0.0, **settings: object) -> AsyncIterator[Process]:
        defaults = {"port": 0, "watch": "false", "drain_delay_seconds": 0.5, "grace_seconds": 20}
        variables = {f"DRAGOMAN_{name.upper()}": str(value) for name, value in {**defaults, **settings}.items()}
        command = [sys.executable, "-m", "tests.api.slow_server", str(seconds)]
        child = await asyncio.create_subprocess_exec(
            *command, env={**os.environ, **variables}, cwd=ROOT, stdout=subprocess.PIPE
        )
        process = Process(child)
        try:
            process.url = (await process.next_line()).split()[-1].replace("localhost", "127.0.0.1")
            yield process
        finally:
            if child.returncode is None:
                child.kill()
            await child.communicate()

    return start


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Ask again and again, because a signal takes its time to arrive."""
    async with asyncio.timeout(20):
        while not await condition():
            pass


async def ask_until_told_to_close(url: str, answers: list[int], barrier: asyncio.Barrier) -> None:
    """What a client behind a load balancer does: it stops using a server that says `Connection: close`."""
    async with open_http() as client:
        answers.append((await client.post(f"{url}/v1/translate", json=ASKED)).status_code)
        await barrier.wait()
        while True:
            response = await client.post(f"{url}/v1/translate", json=ASKED)
            answers.append(response.status_code)
            if response.headers.get("connection") == "close":
                return


async def test_sigterm_under_load_answers_every_accepted_request(open_process: OpenProcess) -> None:
    """A deployment must not cost a single request, and Kubernetes must see a clean exit."""
    answers: list[int] = []
    barrier = asyncio.Barrier(33)
    # Long enough for the probe to be heard among the clients on a busy machine.
    async with open_process(seconds=0.2, drain_delay_seconds=3) as process, asyncio.TaskGroup() as clients:
        for _ in range(32):
            clients.create_task(ask_until_told_to_close(process.url, answers, barrier))
        async with open_http() as probe:
            await barrier.wait()
            process.send(signal.SIGTERM)
            await until(lambda: _is_draining(probe, process.url))
            late = await probe.post(f"{process.url}/v1/translate", json=ASKED)
        assert (late.status_code, late.headers["connection"]) == (200, "close")
        assert await process.exit_code() == 0
    assert set(answers) == {200}


async def test_work_that_outlasts_the_listener_is_finished(open_process: OpenProcess) -> None:
    """The second phase: no new connections, but what was accepted is answered."""
    async with open_process(seconds=1.5, drain_delay_seconds=0) as process, open_http() as client:
        asked = asyncio.create_task(client.post(f"{process.url}/v1/translate", json=ASKED))
        await process.begun()
        process.send(signal.SIGTERM)
        await until(lambda: _is_closed(process.url))
        assert not asked.done()
        assert (await asked).status_code == 200
        assert await process.exit_code() == 0


async def test_a_second_sigterm_exits_at_once(open_process: OpenProcess) -> None:
    """Who asks twice means it, even with work under way."""
    async with open_process(seconds=600, drain_delay_seconds=600) as process, open_http() as client:
        asked = asyncio.create_task(client.post(f"{process.url}/v1/translate", json=ASKED))
        async with open_http() as probe:
            await process.begun()
            process.send(signal.SIGTERM)
            await until(lambda: _is_draining(probe, process.url))
        process.send(signal.SIGTERM)
        assert await process.exit_code() == 1
        with pytest.raises(httpx.TransportError):
            await asked


async def test_sigint_does_not_wait_for_balancers(open_process: OpenProcess) -> None:
    """A person at a terminal is the only one who sends it."""
    async with open_process(drain_delay_seconds=600) as process:
        process.send(signal.SIGINT)
        assert await process.exit_code() == 0


async def test_sighup_reloads_keys(open_process: OpenProcess, tmp_path: Path) -> None:
    """Without a restart, and without watching files."""
    keys = tmp_path / "keys.json"
    write_keys(keys, [])
    async with open_process(keys_file=keys) as process, open_http() as client:
        assert not await _key_works(client, process.url)
        write_keys(keys, [Key("new", digest("new"))])
        process.send(signal.SIGHUP)
        await until(lambda: _key_works(client, process.url))


async def test_changed_keys_are_seen_without_a_signal(open_process: OpenProcess, tmp_path: Path) -> None:
    """A secret that Kubernetes mounts changes without telling anybody."""
    keys = tmp_path / "keys.json"
    write_keys(keys, [])
    async with open_process(keys_file=keys, watch="true") as process, open_http() as client:
        assert not await _key_works(client, process.url)
        write_keys(keys, [Key("new", digest("new"))])
        await until(lambda: _key_works(client, process.url))


async def _is_draining(client: httpx.AsyncClient, url: str) -> bool:
    response = await client.get(f"{url}/readyz")
    return response.status_code == 503 and response.json() == {"ready": False, "reason": "draining"}


async def _is_closed(url: str) -> bool:
    try:
        async with open_http() as client:
            await client.get(f"{url}/healthz")
    except httpx.ConnectError:
        return True
    except httpx.TransportError:  # it stood in the backlog of a listener that was closing
        return False
    return False


async def _key_works(client: httpx.AsyncClient, url: str) -> bool:
    response = await client.post(f"{url}/v1/translate", json=ASKED, headers={"Authorization": "Bearer new"})
    assert response.status_code in (200, 403)
    return response.status_code == 200
