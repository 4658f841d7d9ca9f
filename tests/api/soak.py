"""`python -m tests.api.soak [--seconds 60] [--clients 200] [--bundles DIR]`: a real server, a crowd, and no mistakes.

Starts a server twice, without and with cache and single flight. Every text is asked for alone, then by a crowd for the
given time; each answer must equal the lonely one, byte for byte. Memory is read at the start and at the end: it must
not grow with the work. Exits with 1 when anything is wrong.
"""

import argparse
import asyncio
import csv
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import psutil

from tests.api.crowd import Question, Report, ask_alone, ask_in_a_crowd

SENTENCES = Path(__file__).parents[1] / "data" / "sentences.tsv"
PLAIN = {"DRAGOMAN_CACHE_BYTES": "0"}
ALWAYS = {
    "DRAGOMAN_MAX_QUEUED_TOKENS": "1000000",  # a refusal would be right, but it is not what is tested here
    "DRAGOMAN_TIMEOUT_SECONDS": "600",  # likewise: fair shares of 200 clients are small, and a document takes its time
    "DRAGOMAN_DRAIN_DELAY_SECONDS": "0",
    "DRAGOMAN_LOG_LEVEL": "warning",
}
MAX_GROWTH_BYTES = 64 * 1024 * 1024


def questions(pairs: set[tuple[str, str]]) -> list[Question]:
    """Distinct texts, from a line to a small document, greedy and beam, for the pairs that are served."""
    with SENTENCES.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    asked: list[Question] = []
    for number in range(len(rows)):
        for source, target in (("pt", "en"), ("en", "pt")):
            if (source, target) not in pairs:
                continue
            lines = [rows[(number + place) % len(rows)][source] for place in range(1 if number % 10 else 12)]
            question: Question = {"text": "\n".join(lines), "source": source, "target": target}
            asked.append(question | ({"beam_size": 4, "n_best": 2} if number % 5 == 0 else {}))
    return asked


@asynccontextmanager
async def serve(bundles: Path | None, variables: dict[str, str]) -> AsyncIterator[tuple[str, psutil.Process]]:
    # The server of the benchmarks has no single flight.
    module = ["bench.servers.ours"] if variables == PLAIN else ["dragoman.service.commands.main", "serve"]
    command = [sys.executable, "-m", *module, "--port", "0"]
    command += ["--bundles", str(bundles)] if bundles else []
    environment = {**os.environ, **ALWAYS, **variables}
    process = await asyncio.create_subprocess_exec(*command, env=environment, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        url = (await process.stdout.readline()).decode().split()[-1].replace("localhost", "127.0.0.1")
        yield url, psutil.Process(process.pid)
    finally:
        process.terminate()
        await process.wait()


async def soak(seconds: float, num_clients: int, bundles: Path | None, variables: dict[str, str]) -> bool:
    async with serve(bundles, variables) as (url, process):
        async with httpx.AsyncClient(base_url=url) as client:
            pairs = (await client.get("/v1/languages")).json()["pairs"]
        asked = questions({(pair["source"], pair["target"]) for pair in pairs})
        expected = await ask_alone(url, asked)
        began = time.monotonic()
        # Buffers and caches fill in the first quarter; what grows after it would grow for ever.
        first = await ask_in_a_crowd(
            url, asked, expected, num_clients, lambda _: time.monotonic() < began + seconds / 4
        )
        before = process.memory_info().rss
        rest = await ask_in_a_crowd(url, asked, expected, num_clients, lambda _: time.monotonic() < began + seconds)
        seconds = time.monotonic() - began  # the last answers come after the end
        growth = process.memory_info().rss - before
    report = first.joined(rest)
    print(_line("plain" if variables else "cached", report, seconds, before, growth), flush=True)
    return report.num_wrong == 0 and set(report.statuses) == {200} and growth < MAX_GROWTH_BYTES


def _line(name: str, report: Report, seconds: float, before: int, growth: int) -> str:
    return (
        f"{name}: {report.num_answers} answers in {seconds:.0f} s, {dict(report.statuses)}, {report.num_wrong} wrong, "
        f"p50 {report.percentile(0.5) * 1000:.0f} ms, p99 {report.percentile(0.99) * 1000:.0f} ms, "
        f"memory {before / 1e6:.0f} MB {growth / 1e6:+.0f} MB"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--bundles", type=Path)
    arguments = parser.parse_args()
    good = [
        asyncio.run(soak(arguments.seconds, arguments.clients, arguments.bundles, variables))
        for variables in (PLAIN, {})
    ]
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
