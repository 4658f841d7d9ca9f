"""`python -m deploy.capacity.day [--out day.png]`: a day with a spike, through queue and autoscaler, drawn.

Second by second: what arrives, what all replicas together can do, what waits. How fast a replica answers at which load
comes from the simulated replica (`replica.py`) with measured costs (`measured.json`).
"""

import argparse
import json
import math
import random
from collections import deque
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

from deploy.capacity.autoscaler import SYNC_SECONDS, Autoscaler, Behavior
from deploy.capacity.replica import Costs, Outcome, Segment, simulate

HERE = Path(__file__).parent
MEASURED = HERE / "measured.json"
DAY_SECONDS = 24 * 3600
START_SECONDS = 20  # from the autoscaler's decision to a replica that is ready
DRAIN_SECONDS = 30  # as in the recording rule pod:dragoman_token_demand:rate1m
MAX_QUEUED_TOKENS = 32_768  # of each replica: the setting's default
LOADS = (0.05, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.95)


@dataclass(frozen=True)
class Measured:
    model: str
    machine: str
    costs: Costs
    source_tokens: float
    target_tokens: float


def read_measured(path: Path = MEASURED) -> Measured:
    content = json.loads(path.read_text("utf-8"))
    fields = {name: content[name] for name in ("model", "machine", "source_tokens", "target_tokens")}
    costs = content["costs"]
    steps, encodings = (tuple(map(tuple, costs[name])) for name in ("steps", "encodings"))
    return Measured(**fields, costs=Costs(steps, encodings, costs["request"]))


@dataclass(frozen=True)
class Curve:
    """One decode loop with typical texts: requests per second against seconds to the answer and tokens in flight."""

    saturation: float  # requests per second with all rows taken
    points: tuple[tuple[float, float, float], ...]  # load (share of saturation), seconds, tokens in flight

    def at(self, load: float) -> tuple[float, float]:
        """Seconds and tokens in flight at a share of the saturation, between the points by a straight line."""
        points = self.points
        for (x0, *low), (x1, *high) in pairwise(points):
            if load <= x1:
                share = max(0.0, (load - x0) / (x1 - x0))
                seconds, tokens = (a + share * (b - a) for a, b in zip(low, high, strict=True))
                return seconds, tokens
        return points[-1][1], points[-1][2]


def play(rate: float, measured: Measured, num_requests: int, max_rows: int, seed: int = 0) -> Outcome:
    """Typical texts at random moments."""
    order, now, segments = random.Random(seed), 0.0, []
    for _ in range(num_requests):
        now += order.expovariate(rate)
        size = max(0.2, order.gauss(1.0, 0.5))
        lengths = (max(1, round(measured.source_tokens * size)), max(1, round(measured.target_tokens * size)))
        segments.append(Segment(now, *lengths))
    return simulate(segments, measured.costs, max_rows)


def saturation_of(measured: Measured, max_rows: int) -> float:
    """Requests per second when rows are always full."""
    num_requests = 40 * max_rows
    return num_requests / play(1e6, measured, num_requests, max_rows).ends_at


@lru_cache
def curve(measured: Measured, max_rows: int = 32) -> Curve:
    saturation = saturation_of(measured, max_rows)
    points = []
    for load in LOADS:
        outcome = play(load * saturation, measured, 4000, max_rows)
        points.append((load, sum(outcome.totals) / len(outcome.totals), outcome.tokens_in_flight))
    return Curve(saturation, tuple(points))


@dataclass(frozen=True)
class Demand:
    """Requests per second: low at night, high in the afternoon, and a spike of ten minutes at 10:00."""

    night: float
    peak: float
    spike: float

    def at(self, second: int) -> float:
        hour = second / 3600
        swell = math.sin(math.pi * (hour - 6) / 16) ** 1.5 if 6 < hour < 22 else 0.0
        return self.night + (self.peak - self.night) * swell + (self.spike if 10 <= hour < 10 + 1 / 6 else 0.0)


@dataclass
class Day:
    rates: list[float] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)  # seconds to the answer, of what arrives in this second
    queues: list[float] = field(default_factory=list)  # seconds of it before a row
    replicas: list[int] = field(default_factory=list)
    refused: float = 0.0


def play_day(measured: Measured, behavior: Behavior, loops: int, demand: Demand) -> Day:
    answers, day = curve(measured), Day()
    scaler = Autoscaler(behavior, behavior.min_replicas)
    served = deque[float](maxlen=60)  # tokens per second of the last minute, as the recording rule sees it
    ready, starting, backlog = float(behavior.min_replicas), [], 0.0  # replicas; when the next are ready; requests
    for second in range(DAY_SECONDS):
        starting, ready = _start(starting, ready, second)
        rate, capacity = demand.at(second), ready * loops * answers.saturation
        backlog = max(0.0, backlog + rate - capacity)
        room = ready * MAX_QUEUED_TOKENS / measured.source_tokens
        day.refused += max(0.0, backlog - room)
        backlog = min(backlog, room)
        load = min(0.95, rate / capacity) if not backlog else 0.95
        seconds, _ = answers.at(load)
        queue = backlog / capacity
        day.rates.append(rate)
        day.waits.append(seconds + queue)
        day.queues.append(queue)
        day.replicas.append(int(ready))
        served.append(min(rate, capacity) * measured.source_tokens)
        if second % SYNC_SECONDS == 0:
            asked = sum(served) / len(served) + backlog * measured.source_tokens / DRAIN_SECONDS
            wanted = scaler.sync(second, asked / ready, queue)
            pending = int(ready) + len(starting)
            starting += [second + START_SECONDS] * max(0, wanted - pending)
            ready = min(ready, float(wanted))
    return day


def _start(starting: list[int], ready: float, second: int) -> tuple[list[int], float]:
    return [when for when in starting if when > second], ready + sum(when <= second for when in starting)


def draw(day: Day, behavior: Behavior, out: Path, caption: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    hours = [second / 3600 for second in range(0, DAY_SECONDS, 10)]
    figure, (load, wait, size) = plt.subplots(3, 1, figsize=(11, 7.5), sharex=True, layout="constrained")
    load.plot(hours, day.rates[::10], color="tab:gray")
    load.set_ylabel("requests per second")
    load.set_title(caption, fontsize=10)
    wait.semilogy(hours, day.waits[::10], color="tab:red", label="to the answer")
    wait.axhline(2.0, color="tab:red", linestyle="--", linewidth=0.8, label="objective: 2 s")
    wait.set_ylabel("seconds (mean)")
    wait.legend(loc="upper right", fontsize=8)
    size.step(hours, day.replicas[::10], color="tab:blue", where="post")
    size.set_ylabel("replicas ready")
    size.set_ylim(bottom=0)
    size.set_xlabel("hour")
    for axes in (load, wait, size):
        axes.grid(alpha=0.3)
        axes.set_xlim(0, 24)
    figure.savefig(out, dpi=80)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=HERE / "day.png")
    parser.add_argument("--target", type=float, default=None, help="tokens per second and replica")
    arguments = parser.parse_args()
    from deploy.grafana.panels import TARGET_TOKENS_PER_REPLICA

    measured, loops = read_measured(), 2
    one = curve(measured)
    behavior = Behavior(2, 20, arguments.target or TARGET_TOKENS_PER_REPLICA, 0.5)
    per_replica = loops * one.saturation
    day = play_day(measured, behavior, loops, Demand(0.8 * per_replica, 5 * per_replica, 5 * per_replica))
    caption = f"{measured.model}; a replica with {loops} CPUs answers at most {per_replica:.0f} requests per second"
    draw(day, behavior, arguments.out, caption)
    total = sum(day.rates)
    late = sum(rate for rate, wait in zip(day.rates, day.waits, strict=True) if wait > 2) / total
    for load, seconds, tokens in one.points:
        print(f"load {load:4.2f}: {seconds * 1000:7.1f} ms, {tokens * loops:7.0f} tokens in flight per replica")
    print(
        f"saturation {one.saturation:.1f} requests/s per CPU; replicas {min(day.replicas)} to {max(day.replicas)}; "
        f"slower than 2 s {late:.2%}; refused {day.refused / total:.2%}; longest wait {max(day.waits):.1f} s"
    )


if __name__ == "__main__":
    main()
