"""Servers as processes of their own on one core: ours with its settings, or any other command."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from bench.harness import ROOT

SETTLE_SECONDS = 6.0  # ours reads its language detector a few seconds after the start
READY_SECONDS = 60
# Nothing that would answer a repeated sentence from memory, and nothing that peers do not do either.
OUR_SETTINGS = {
    "THREADS": "1",
    "CACHE_BYTES": "0",
    "ACCESS_LOG": "false",
    "LOG_LEVEL": "error",
    "DRAIN_DELAY_SECONDS": "0",
    "GRACE_SECONDS": "1",
    "WATCH": "false",
}


@dataclass(frozen=True)
class Command:
    """How to start a server; `{port}` among the words becomes its port."""

    words: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)


def ours(bundle: Path, *options: str, **settings: str) -> Command:
    """`bench.servers.ours` on the folder that holds this bundle; settings by their names without the prefix."""
    words = [sys.executable, "-m", "bench.servers.ours", "--port", "{port}", "--bundles", str(bundle.parent), *options]
    chosen = OUR_SETTINGS | {name.upper(): value for name, value in settings.items()}
    return Command(words, {f"DRAGOMAN_{name}": value for name, value in chosen.items()})


def peer(name: str, twin: Path, bundle: Path, *options: str) -> Command:
    words = [sys.executable, "-m", f"bench.servers.{name}", "--port", "{port}"]
    return Command([*words, "--twin", str(twin), "--bundle", str(bundle), *options])


@dataclass(frozen=True)
class Server:
    port: int
    process: psutil.Process

    def cpu_seconds(self) -> float:
        times = self.process.cpu_times()
        return float(times.user + times.system)

    def ask(self, text: str, source: str = "pt", target: str = "en") -> str:
        """One translation, by the plainest client there is."""
        question = json.dumps({"text": text, "source": source, "target": target}).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/v1/translate", question, headers)
        with urllib.request.urlopen(request, timeout=30) as response:
            return str(json.load(response)["translations"][0]["text"])

    def await_ready(self) -> None:
        ends_at = time.monotonic() + READY_SECONDS
        while time.monotonic() < ends_at and self.process.is_running():
            try:
                self.ask("Bom dia!")
                return
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.1)
        raise RuntimeError(f"the server on port {self.port} was not ready within {READY_SECONDS} s")


@contextmanager
def serving(
    commands: Mapping[str, Command], core: int, settle_seconds: float = SETTLE_SECONDS
) -> Iterator[dict[str, Server]]:
    """The servers, all on the same core and all ready. Only the one that is asked takes time."""
    with ExitStack() as stack:
        servers = {name: stack.enter_context(_process(command, core)) for name, command in commands.items()}
        for server in servers.values():
            server.await_ready()
        time.sleep(settle_seconds)
        yield servers


# An installed server has its bytecode, whatever the caller's own interpreter is told; the first start writes it.
_AS_INSTALLED = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(ROOT / "build" / "bench" / "bytecode")}


@contextmanager
def _process(command: Command, core: int) -> Iterator[Server]:
    port = _free_port()
    environment = os.environ | _AS_INSTALLED | {"OMP_NUM_THREADS": "1"} | dict(command.environment)
    process = subprocess.Popen(
        [word.format(port=port) for word in command.words],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.DEVNULL,
        preexec_fn=lambda: os.sched_setaffinity(0, {core}),
    )
    try:
        yield Server(port, psutil.Process(process.pid))
    finally:
        process.terminate()
        try:
            process.wait(timeout=15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
