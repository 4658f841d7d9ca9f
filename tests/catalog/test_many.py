"""Fifty bundles on one server within one gigabyte: every pair answers, whatever comes and goes."""

import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import psutil
import pytest

from tests.catalog.many_bundles import write_many

LIMIT = 1 << 30
COUNT = 50
REQUESTS = 400
SENTENCES = ("Bom dia.", "O gato dorme no sofá.", "Amanhã vamos à praia com os amigos.", "A porta ficou aberta.")


@pytest.fixture
def group() -> Iterator[Path | None]:
    """A memory cgroup of our own below the one that we are in; None where the machine does not let us make one."""
    own = [line.split(":", 2)[2] for line in Path("/proc/self/cgroup").read_text().split("\n") if ":memory:" in line]
    path = Path("/sys/fs/cgroup/memory") / own[0].lstrip("/") / f"many-{os.getpid()}" if own else None
    try:
        if path is not None:
            path.mkdir()
            (path / "memory.limit_in_bytes").write_text(str(LIMIT))
    except OSError:
        path = None
    yield path
    if path is not None:
        path.rmdir()


class Server:
    """`dragoman serve` in a process of its own, with its largest resident set."""

    def __init__(self, bundles: Path, group: Path | None) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url, self.largest = f"http://127.0.0.1:{port}", 0
        own = {"DRAGOMAN_BUNDLE_MEMORY": "450M", "DRAGOMAN_MAX_ROWS": "8", "DRAGOMAN_CACHE_BYTES": "0"}
        command = [str(Path(sys.executable).parent / "dragoman"), "serve", "--bundles", str(bundles)]
        shell = f"echo $$ > {group}/cgroup.procs; " if group else ""
        self._process = subprocess.Popen(
            ["sh", "-c", f'{shell}exec "$@"', "sh", *command, "--port", str(port)], env={**os.environ, **own}
        )
        self._watch = threading.Thread(target=self._sample, daemon=True)

    def _sample(self) -> None:
        process = psutil.Process(self._process.pid)
        while self._process.poll() is None:
            self.largest = max(self.largest, process.memory_info().rss)
            time.sleep(0.05)

    def __enter__(self) -> "Server":
        until = time.monotonic() + 120
        while time.monotonic() < until:
            try:
                if httpx.get(f"{self.url}/readyz").status_code == 200:
                    self._watch.start()
                    return self
            except httpx.TransportError:
                time.sleep(0.1)
        raise AssertionError("the server did not start")

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(60)


@pytest.mark.full
def test_fifty_bundles_answer_within_a_gigabyte(tmp_path: Path, group: Path | None) -> None:
    """None fails while others are loaded and let go under load, and the process stays within the limit."""
    pairs = write_many(tmp_path, COUNT)
    began = time.monotonic()
    with Server(tmp_path, group) as server, httpx.Client(timeout=60) as client:
        print(f"ready after {time.monotonic() - began:.1f} s; cgroup: {group is not None}")
        listed = client.get(f"{server.url}/v1/models").json()["models"]
        assert len(listed) == COUNT

        def ask(number: int) -> tuple[int, float]:
            rng = random.Random(number)
            source, target = pairs[number] if number < COUNT else rng.choice(pairs)
            body = {"text": rng.choice(SENTENCES), "source": source, "target": target}
            asked_at = time.monotonic()
            answer = client.post(f"{server.url}/v1/translate", json=body)
            return answer.status_code, time.monotonic() - asked_at

        cold = sorted(seconds for status, seconds in map(ask, range(COUNT)) if status == 200)
        assert len(cold) == COUNT
        with ThreadPoolExecutor(8) as pool:
            under_load = list(pool.map(ask, range(COUNT, COUNT + REQUESTS)))
        assert {status for status, _ in under_load} == {200}
        times = sorted(seconds for _, seconds in under_load)
        metrics = client.get(f"{server.url}/metrics").text
    told = [line for line in metrics.splitlines() if "bundle" in line and "bucket" not in line and line[0] != "#"]
    print(*[line for line in told if "info" not in line], sep="\n")
    print(f"cold: median {cold[COUNT // 2]:.2f} s, largest {cold[-1]:.2f} s")
    print(f"8 callers: median {times[len(times) // 2]:.2f} s, largest {times[-1]:.2f} s")
    print(f"largest resident set {server.largest / 2**20:.0f} MiB")
    assert server.largest < LIMIT
