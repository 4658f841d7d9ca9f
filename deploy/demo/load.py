"""A bounded load on the loopback: requests at random moments of a given rate, whether or not earlier ones came back.

An open loop shows what users would feel; clients that wait for their answers hide a slow server. Nothing is ever asked
twice: whatever is not a whole answer counts as failed.
"""

import asyncio
import json
import random
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

LOOPBACK = "127.0.0.1"
TIMEOUT_SECONDS = 30.0
Body = dict[str, object]
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class NoAnswerError(Exception):
    """The connection ended before the answer did."""


@dataclass
class Report:
    statuses: Counter[int] = field(default_factory=Counter)  # 0: no whole answer
    seconds: list[float] = field(default_factory=list)  # of the answers with 200
    queue_seconds: list[float] = field(default_factory=list)  # what those answers say about their wait
    num_tokens: int = 0  # generated
    errors: list[str] = field(default_factory=list)

    @property
    def num_requests(self) -> int:
        return sum(self.statuses.values())

    def percentile(self, share: float) -> float:
        ordered = sorted(self.seconds) or [float("nan")]
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


class Client:
    """HTTP to one port, over connections that are kept as long as the server keeps them."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._idle: deque[Connection] = deque()

    async def post(self, path: str, body: Body) -> tuple[int, bytes]:
        connection = self._idle.pop() if self._idle else await asyncio.open_connection(LOOPBACK, self._port)
        reader, writer = connection
        content = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: load\r\nContent-Type: application/json\r\nContent-Length: {len(content)}"
        try:
            writer.write(f"{head}\r\n\r\n".encode() + content)
            status, keep, answer = await _read_answer(reader)
        except BaseException:
            writer.close()
            raise
        if keep:
            self._idle.append(connection)
        else:
            writer.close()
        return status, answer

    def close(self) -> None:
        for _, writer in self._idle:
            writer.close()
        self._idle.clear()


async def _read_answer(reader: asyncio.StreamReader) -> tuple[int, bool, bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
    if "content-length" not in headers:
        raise NoAnswerError("an answer without a length")
    content = await reader.readexactly(int(headers["content-length"]))
    return int(head[0].split()[1]), headers.get("connection", "").lower() != "close", content


async def put_load(
    port: int,
    bodies: Sequence[Body],
    rate: float,
    go_on: Callable[[Report, float], bool],
    seed: int = 0,
    path: str = "/v1/translate",
    max_in_flight: int = 10_000,
) -> Report:
    """Ask at random moments, `rate` times a second on average, while `go_on(report, seconds since the start)`.

    Where `max_in_flight` is small, clients wait for each other: a load that no machine is too slow for.
    """
    order, client, report = random.Random(seed), Client(port), Report()
    places = asyncio.Semaphore(max_in_flight)
    began = due = time.monotonic()
    async with asyncio.TaskGroup() as group:
        while go_on(report, time.monotonic() - began):
            await places.acquire()
            asked = group.create_task(_ask(client, path, bodies[order.randrange(len(bodies))], report))
            asked.add_done_callback(lambda _: places.release())
            due += order.expovariate(rate)
            await asyncio.sleep(max(0.0, due - time.monotonic()))
    client.close()
    return report


async def _ask(client: Client, path: str, body: Body, report: Report) -> None:
    began = time.monotonic()
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            status, content = await client.post(path, body)
    except (OSError, TimeoutError, asyncio.IncompleteReadError, NoAnswerError) as error:
        report.statuses[0] += 1
        report.errors.append(repr(error))
        return
    report.statuses[status] += 1
    if status == 200:
        report.seconds.append(time.monotonic() - began)
        _note(report, json.loads(content))
    elif status >= 500:
        report.errors.append(f"{status} {content[:200]!r}")


def _note(report: Report, answer: dict[str, object]) -> None:
    timings, translations = answer.get("timings"), answer.get("translations")
    if isinstance(timings, dict) and isinstance(translations, list):
        report.queue_seconds.append(timings["queue_ms"] / 1000)
        report.num_tokens += sum(segment["num_tokens"] for each in translations for segment in each["segments"])
