"""`python -m deploy.demo.rolling [--requests 5000] [--rate 150]`: restart both replicas under load, lose nothing.

Two servers behind a real haproxy that checks their readiness (deploy/haproxy.cfg). One after the other they get
SIGTERM, must exit with 0, are started again and rejoin, round after round, until enough requests were answered. Exits
with 1 when a single one failed, or when fewer than two rounds fitted in.
"""

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from deploy.demo.__main__ import sentences, served_pair
from deploy.demo.load import LOOPBACK, Report, put_load
from deploy.demo.processes import ROOT, any_bundles, ending, free_port, missing_tools, start_server, wait_until_answers

SETTINGS = {"DRAGOMAN_DRAIN_DELAY_SECONDS": "3", "DRAGOMAN_THREADS": "1"}
EXIT_SECONDS = 40.0
MIN_ROUNDS = 2
MAX_IN_FLIGHT = 24


@dataclass
class Replica:
    name: str
    port: int
    bundles: Path
    work: Path
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.process = start_server(self.port, self.bundles, SETTINGS, self.work / f"{self.name}.log")
        wait_until_answers(f"http://{LOOPBACK}:{self.port}/readyz", self.process)

    def stop(self) -> int:
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(EXIT_SECONDS)

    def kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()


class Proxy:
    """haproxy, and what it thinks of its servers."""

    def __init__(self, replicas: list[Replica], work: Path) -> None:
        self.port, self._socket = free_port(), work / "haproxy.sock"
        ports = {f"PORT_{replica.name.upper()}": str(replica.port) for replica in replicas}
        variables = {**os.environ, **ports, "PORT_FRONT": str(self.port), "SOCKET": str(self._socket)}
        with (work / "haproxy.log").open("wb") as log:
            command = ["haproxy", "-db", "-f", str(ROOT / "deploy" / "haproxy.cfg")]
            self.process = subprocess.Popen(command, env=variables, stdout=log, stderr=log)

    async def is_up(self, name: str) -> bool:
        with suppress(OSError):
            reader, writer = await asyncio.open_unix_connection(str(self._socket))
            writer.write(b"show stat\n")
            rows = (await reader.read()).decode().splitlines()
            writer.close()
            return any(row.startswith(f"replicas,{name},") and row.split(",")[17].startswith("UP") for row in rows)
        return False

    async def wait_until_up(self, name: str) -> None:
        async with asyncio.timeout(20):
            while not await self.is_up(name):  # noqa: ASYNC110 (another process knows, and only when asked)
                await asyncio.sleep(0.1)


async def restart_in_turn(replicas: list[Replica], proxy: Proxy, done: asyncio.Event) -> tuple[int, list[int]]:
    """Rounds, and the exit codes."""
    rounds, exits = 0, []
    while not done.is_set():
        for replica in replicas:
            exits.append(await asyncio.to_thread(replica.stop))
            await asyncio.to_thread(replica.start)
            await proxy.wait_until_up(replica.name)
        rounds += 1
    return rounds, exits


async def roll(replicas: list[Replica], proxy: Proxy, num_requests: int, rate: float) -> tuple[Report, int, list[int]]:
    for replica in replicas:
        await proxy.wait_until_up(replica.name)
    source, target = served_pair(proxy.port)
    bodies = [{"text": line, "source": source, "target": target} for line in sentences(source)]
    done = asyncio.Event()
    restarts = asyncio.create_task(restart_in_turn(replicas, proxy, done))

    def go_on(report: Report, _: float) -> bool:
        return report.num_requests < num_requests and not restarts.done()

    report = await put_load(proxy.port, bodies, rate, go_on, max_in_flight=MAX_IN_FLIGHT)
    done.set()
    rounds, exits = await restarts
    return report, rounds, exits


def run(num_requests: int, rate: float) -> bool:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        work = Path(folder)
        bundles = any_bundles(work)
        replicas = [Replica(name, free_port(), bundles, work) for name in ("a", "b")]
        for replica in replicas:
            stack.callback(replica.kill)
            replica.start()
        proxy = Proxy(replicas, work)
        stack.enter_context(ending(proxy.process))
        report, rounds, exits = asyncio.run(roll(replicas, proxy, num_requests, rate))
        if report.errors:
            report.errors += (work / "haproxy.log").read_text().splitlines()
    failed = report.num_requests - report.statuses[200]
    print(
        f"{report.num_requests} requests during {rounds} rolling restarts of 2 replicas: {failed} failed, "
        f"{dict(report.statuses)}, p50 {report.percentile(0.5):.3f} s, p99 {report.percentile(0.99):.3f} s, exit codes "
        f"{sorted(set(exits))}",
        *report.errors[-20:],
        sep="\n  ",
    )
    return failed == 0 and set(exits) == {0} and rounds >= MIN_ROUNDS and report.num_requests >= num_requests


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=5000)
    parser.add_argument("--rate", type=float, default=150.0, help="requests per second, at most")
    arguments = parser.parse_args()
    if missing := missing_tools("haproxy"):
        print(f"skipped: {', '.join(missing)} is not installed (Debian: apt install haproxy)")
        return
    sys.exit(0 if run(arguments.requests, arguments.rate) else 1)


if __name__ == "__main__":
    main()
