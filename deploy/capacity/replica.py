"""One replica, simulated step by step: who waits how long when texts arrive at given moments.

The same loop as the engine's, with times in place of work: waiting segments join up to the rows and the encoding
budget, a step takes longer the more rows it has, and gives one token to each. What steps cost is measured
(`measure.py`); nothing here knows a clock.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

Points = tuple[tuple[float, float], ...]  # size and seconds, by size


@dataclass(frozen=True)
class Costs:
    """What one decode loop takes, as measured at a few sizes; between and beyond them on a straight line."""

    steps: Points  # a decoder step, by its rows
    encodings: Points  # an encoder run, by its source tokens
    request: float  # seconds outside the loop: HTTP, tokenizing

    def step_seconds(self, rows: int) -> float:
        return _on_line(self.steps, rows)

    def encode_seconds(self, tokens: int) -> float:
        return _on_line(self.encodings, tokens)


def _on_line(points: Points, size: float) -> float:
    place = min(max(1, bisect_left(points, (size,))), len(points) - 1)
    (x0, y0), (x1, y1) = points[place - 1], points[place]
    return max(0.0, y0 + (size - x0) * (y1 - y0) / (x1 - x0))


@dataclass(frozen=True)
class Segment:
    arrives_at: float
    source_tokens: int
    target_tokens: int


@dataclass(frozen=True)
class Outcome:
    waits: tuple[float, ...]  # for a row, of each segment in the order they finish
    totals: tuple[float, ...]  # from arrival to answer
    busy_seconds: float
    tokens_in_flight: float  # on average over the time: waiting and decoded, in source tokens
    ends_at: float


def simulate(segments: Sequence[Segment], costs: Costs, max_rows: int = 32, encode_budget: int = 256) -> Outcome:
    """Play segments, in the order they arrive, through one decode loop."""
    coming, waiting = deque(segments), deque[Segment]()
    rows: list[tuple[Segment, int]] = []  # and the tokens still to come
    waits: list[float] = []
    totals: list[float] = []
    now = busy = area = 0.0
    while coming or waiting or rows:
        if not waiting and not rows:
            now = max(now, coming[0].arrives_at)
        began = now
        _arrive(coming, waiting, now)
        joined = _admit(waiting, max_rows - len(rows), encode_budget)
        if joined:
            waits += [now - segment.arrives_at for segment in joined]
            now += costs.encode_seconds(sum(segment.source_tokens for segment in joined))
            rows += [(segment, segment.target_tokens) for segment in joined]
        now += costs.step_seconds(len(rows))
        in_flight = sum(segment.source_tokens for segment, _ in rows) + sum(each.source_tokens for each in waiting)
        rows = [(segment, left - 1) for segment, left in rows]
        totals += [now - segment.arrives_at + costs.request for segment, left in rows if left <= 0]
        rows = [(segment, left) for segment, left in rows if left > 0]
        busy += now - began
        area += (now - began) * in_flight
    return Outcome(tuple(waits), tuple(totals), busy, area / now if now else 0.0, now)


def _arrive(coming: deque[Segment], waiting: deque[Segment], now: float) -> None:
    while coming and coming[0].arrives_at <= now:
        waiting.append(coming.popleft())


def _admit(waiting: deque[Segment], free_rows: int, encode_budget: int) -> list[Segment]:
    joined: list[Segment] = []
    while waiting and len(joined) < free_rows:
        tokens = sum(segment.source_tokens for segment in joined) + waiting[0].source_tokens
        if joined and tokens > encode_budget:
            break
        joined.append(waiting.popleft())
    return joined
