"""Many clients at one time, and whether each gets its own answer: used by the tests and by `soak.py`.

Every text is asked for alone first. Then a crowd asks for all of them again and again, and each answer must equal the
lonely one, byte for byte: text, scores, everything but the timings.
"""

import asyncio
import itertools
import json
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from tests.api.wire import Wire

Question = dict[str, object]  # the body of a request


@dataclass
class Report:
    num_answers: int = 0
    num_wrong: int = 0
    statuses: Counter[int] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)

    def joined(self, other: "Report") -> "Report":
        return Report(
            self.num_answers + other.num_answers,
            self.num_wrong + other.num_wrong,
            self.statuses + other.statuses,
            self.seconds + other.seconds,
        )

    def percentile(self, share: float) -> float:
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


async def ask_alone(url: str, questions: Sequence[Question]) -> list[bytes]:
    """The answers, one question after the other."""
    async with Wire.open(url) as wire:
        return [comparable(await _ask(wire, question)) for question in questions]


async def ask_in_a_crowd(
    url: str,
    questions: Sequence[Question],
    expected: Sequence[bytes],
    num_clients: int,
    go_on: Callable[[Report], bool],
    meanwhile: Awaitable[None] | None = None,
) -> Report:
    """Clients that each hold a connection and ask at random, until `go_on` says no."""
    report, numbers = Report(), itertools.count()

    async def client() -> None:
        order = random.Random(next(numbers))
        async with Wire.open(url) as wire:
            while go_on(report):
                number = order.randrange(len(questions))
                began = time.perf_counter()
                status, body = await _ask(wire, questions[number])
                report.seconds.append(time.perf_counter() - began)
                report.num_answers += 1
                report.statuses[status] += 1
                report.num_wrong += comparable((status, body)) != expected[number]

    async with asyncio.TaskGroup() as group:
        for _ in range(num_clients):
            group.create_task(client())
        if meanwhile is not None:
            await meanwhile
    return report


def comparable(answer: tuple[int, bytes]) -> bytes:
    """What must not depend on the crowd."""
    status, body = answer
    content = json.loads(body)
    return json.dumps([status, content.get("translations")]).encode()


async def _ask(wire: Wire, question: Question) -> tuple[int, bytes]:
    await wire.post("/v1/translate", question)
    answer = await wire.answer()
    return answer.status, answer.body
