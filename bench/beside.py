"""A one-line request beside a document: its latency, and what the document keeps of its throughput.

    python -m bench.beside [quick | full]

Our server on one core (one decode loop, no cache), the load on the other. Continuous batching and whole batches (the
same engine with joining switched off) are measured in turn, several rounds. One-line requests leave on a fixed clock,
whether or not the last one was answered, so that a slow server cannot slow its own measurement.
"""

import asyncio
import itertools
import statistics
import time
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass

import uvloop

from bench.harness import Cell, Profile, Ratio, Report, Table, command, pinned, slower, spread, steps
from bench.load import Client, Plan, Probe, probe
from bench.processes import Server, ours, serving
from bench.questions import whole_sentences, wire
from dragoman.service.bundles.manifest import read_bundle

DOCUMENT_SENTENCES = 500
INTERVAL_SECONDS = 0.1
LINE_WORDS = 8  # at most
CONTINUOUS, WHOLE = "continuous", "whole batches"
LINE_MS, LINE_TIMES = 50.0, 4.0  # p95 beside a document may be the larger of this, and of so many times the lonely one
WHOLE_BAR, DOCUMENT_BAR = 0.2, 0.7


@dataclass(frozen=True)
class Work:
    """What is sent, ready for the wire."""

    lines: Sequence[bytes]
    document: bytes
    num_requests: int  # one-line requests of a measurement

    def plan(self, count: int | None = None) -> Plan:
        count = count or self.num_requests
        at = [number * INTERVAL_SECONDS for number in range(count)]
        return Plan(1 / INTERVAL_SECONDS, at, list(itertools.islice(itertools.cycle(self.lines), count)))


@dataclass(frozen=True)
class Round:
    lonely_p95: float  # milliseconds
    beside_p50: float
    beside_p95: float
    document_alone: float  # sentences per second
    document_beside: float

    @property
    def allowed(self) -> float:
        return max(LINE_MS, LINE_TIMES * self.lonely_p95)


def run(profile: Profile) -> Report:
    rounds = profile.runs or profile.choose(1, 3)
    work = prepare(profile, num_requests=profile.choose(60, 100))
    commands = {CONTINUOUS: ours(profile.bundle), WHOLE: ours(profile.bundle, "--whole-batches")}
    found: dict[str, list[Round]] = {name: [] for name in commands}
    with steps(profile, "beside", 2 * rounds) as begin, pinned(1), serving(commands, core=0) as servers:
        for number in range(rounds):
            for name in list(servers) if number % 2 == 0 else reversed(servers):
                begin(f"{name}, round {number + 1}")
                found[name].append(uvloop.run(measure(servers[name], work)))
    return report(found)


def prepare(profile: Profile, num_requests: int) -> Work:
    bundle = read_bundle(profile.bundle, check_hashes=False)
    pair, texts = bundle.pairs[0], whole_sentences(profile, bundle)
    lines = [wire(text, pair.source, pair.target) for text in texts if len(text.split()) <= LINE_WORDS]
    document = list(itertools.islice(itertools.cycle(texts), DOCUMENT_SENTENCES))
    return Work(lines, wire(document, pair.source, pair.target), num_requests)


async def measure(server: Server, work: Work) -> Round:
    await good(probe(server.port, work.plan(10)))  # warm-up
    lonely = await good(probe(server.port, work.plan()))
    client = Client(server.port)
    now = asyncio.Event()
    now.set()
    alone = statistics.median([await documents(client, work, now) for _ in range(3)])
    enough = asyncio.Event()
    load = asyncio.create_task(documents(client, work, enough))
    beside = await good(probe(server.port, work.plan()))
    enough.set()
    kept = await load
    await client.close()
    p50, p95 = (1000 * beside.percentile(percent) for percent in (50, 95))
    return Round(1000 * lonely.percentile(95), p50, p95, alone, kept)


async def good(coming: Awaitable[Probe]) -> Probe:
    found = await coming
    if found.errors or found.unanswered:
        raise RuntimeError(f"{found.errors} requests failed and {found.unanswered} were not answered")
    return found


async def documents(client: Client, work: Work, enough: asyncio.Event) -> float:
    """Sentences per second of one document after another, until there is enough."""
    done, began = 0, time.perf_counter()
    while not enough.is_set() or not done:
        status: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        client.send(work.document, status.set_result)
        if await status != 200:
            raise RuntimeError(f"a document was answered with {status.result()}")
        done += DOCUMENT_SENTENCES
    return done / (time.perf_counter() - began)


def report(found: dict[str, list[Round]]) -> Report:
    ours, whole = found[CONTINUOUS], found[WHOLE]
    beside, allowed = [one.beside_p95 for one in ours], [one.allowed for one in ours]
    what = "p95 of a line beside a document"
    return Report(
        "beside",
        "A one-line request beside a document",
        tables=[_table(found)],
        ratios=[
            slower(what, "the same engine, whole batches", beside, [one.beside_p95 for one in whole], "ms", WHOLE_BAR),
            slower(what, "the larger of 50 ms and four times the lonely p95", beside, allowed, "ms", 1.0),
            _kept(ours),
        ],
        notes=[
            f"One line every {INTERVAL_SECONDS} s on a fixed clock; a document is one request of {DOCUMENT_SENTENCES} "
            "sentences, and the next is sent when it is answered. Ratios are medians of the rounds.",
        ],
    )


def _kept(rounds: Sequence[Round]) -> Ratio:
    kept = sorted(one.document_beside / one.document_alone for one in rounds)
    beside, alone = (
        statistics.median(side) for side in zip(*((r.document_beside, r.document_alone) for r in rounds), strict=True)
    )
    what, median = "throughput of a document beside lines", statistics.median(kept)
    return Ratio(what, "itself alone", beside, alone, "sentences/s", median, kept[0], kept[-1], DOCUMENT_BAR, True)


def _table(found: dict[str, list[Round]]) -> Table:
    names = {
        "lonely_p95": "a line alone, p95 ms",
        "beside_p50": "a line beside a document, p50 ms",
        "beside_p95": "a line beside a document, p95 ms",
        "document_alone": "the document alone, sentences/s",
        "document_beside": "the document beside lines, sentences/s",
    }
    values = {name: [[getattr(one, name) for one in rounds] for rounds in found.values()] for name in names}
    rows: list[list[Cell]] = [[title, *map(spread, values[name])] for name, title in names.items()]
    return Table("A line beside a document", ["what", *found], rows)


if __name__ == "__main__":
    command(run, __doc__)
