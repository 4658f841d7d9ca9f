"""A one-line request beside a document: its latency, and what the document keeps of its throughput.

    python -m bench.beside [--requests 80] [--json OUT]

A real server on one core (the embedded bundles, one decode loop, no cache), the load on the other. Continuous batching
and whole batches (the same engine with joining switched off) run one after the other, in one run. One-line requests are
sent on a fixed clock, whether or not the last one was answered, so that a slow server cannot slow its own measurement.
"""

import asyncio
import csv
import itertools
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import httpx
import typer
from rich.console import Console
from rich.table import Table

SENTENCES = Path(__file__).parents[1] / "tests" / "data" / "sentences.tsv"
DOCUMENT_SENTENCES = 500
INTERVAL_SECONDS = 0.1


@contextmanager
def server(continuous: bool) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = {"THREADS": "1", "CACHE_BYTES": "0", "SINGLE_FLIGHT": "false", "ACCESS_LOG": "false"}
    settings |= {"CONTINUOUS": str(continuous).lower(), "DRAIN_DELAY_SECONDS": "0", "LOG_LEVEL": "error"}
    environment = os.environ | {f"DRAGOMAN_{name}": value for name, value in settings.items()}
    command = [sys.executable, "-m", "service.cli", "serve", "--port", str(port)]
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, preexec_fn=lambda: os.sched_setaffinity(0, {0})
    )
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(timeout=30)


def sentences() -> list[str]:
    with SENTENCES.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    return [row["pt"] for row in rows if row["category"] not in ("placeholders", "very_long")]


async def ask(client: httpx.AsyncClient, text: str | list[str]) -> float:
    began = time.perf_counter()
    response = await client.post("/v1/translate", json={"text": text, "source": "pt", "target": "en"})
    response.raise_for_status()
    return time.perf_counter() - began


async def one_liners(client: httpx.AsyncClient, count: int) -> list[float]:
    """Latencies in seconds, on a fixed clock."""
    lines = [line for line in sentences() if len(line.split()) <= 8]
    started, tasks = time.perf_counter(), []
    for number, line in zip(range(count), itertools.cycle(lines)):
        await asyncio.sleep(max(0.0, started + number * INTERVAL_SECONDS - time.perf_counter()))
        tasks.append(asyncio.create_task(ask(client, line)))
    return list(await asyncio.gather(*tasks))


async def documents(client: httpx.AsyncClient, enough: asyncio.Event) -> float:
    """Sentences per second of one document after another, until there is enough."""
    document = list(itertools.islice(itertools.cycle(sentences()), DOCUMENT_SENTENCES))
    done, began = 0, time.perf_counter()
    while not enough.is_set() or not done:
        await ask(client, document)
        done += DOCUMENT_SENTENCES
    return done / (time.perf_counter() - began)


async def measure(url: str, requests: int) -> dict[str, float]:
    async with httpx.AsyncClient(base_url=url, timeout=120) as client:
        await ready(client)
        await one_liners(client, 10)  # warm-up
        lonely = await one_liners(client, requests)
        now = asyncio.Event()
        now.set()
        alone = statistics.median([await documents(client, now) for _ in range(3)])
        enough = asyncio.Event()
        load = asyncio.create_task(documents(client, enough))
        beside = await one_liners(client, requests)
        enough.set()
        return {
            "lonely_p95_ms": 1000 * percentile(lonely, 95),
            "beside_p50_ms": 1000 * percentile(beside, 50),
            "beside_p95_ms": 1000 * percentile(beside, 95),
            "document_alone_sentences_per_second": alone,
            "document_beside_sentences_per_second": await load,
        }


async def ready(client: httpx.AsyncClient) -> None:
    for _ in range(300):
        try:
            if (await client.get("/readyz")).status_code == 200:
                return
        except httpx.TransportError:
            pass
        await asyncio.sleep(0.1)
    raise SystemExit("the server did not become ready within 30 s; `dragoman doctor` says why")


def percentile(values: list[float], percent: int) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


def main(
    requests: Annotated[int, typer.Option(help="one-line requests per measurement")] = 80,
    out: Annotated[Path | None, typer.Option("--json")] = None,
) -> None:
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    results: dict[str, Any] = {}
    for name, continuous in (("continuous", True), ("whole batches", False)):
        with server(continuous) as url:
            results[name] = asyncio.run(measure(url, requests))
    ours, theirs = results["continuous"], results["whole batches"]
    results["ratio"] = {
        "p95 beside, to lonely": ours["beside_p95_ms"] / ours["lonely_p95_ms"],
        "p95 beside, to whole batches": ours["beside_p95_ms"] / theirs["beside_p95_ms"],
        "document beside, to alone": ours["document_beside_sentences_per_second"]
        / ours["document_alone_sentences_per_second"],
    }
    for name, row in results.items():
        table = Table("what", "value", title=name)
        for key, value in row.items():
            table.add_row(key, f"{value:.2f}")
        Console().print(table)
    if out:
        out.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    typer.run(main)
