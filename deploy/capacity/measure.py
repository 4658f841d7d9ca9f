"""`python -m deploy.capacity.measure [--bundles DIR]`: what steps cost here, and whether the simulator is right.

Starts a server with one decode loop, without cache. Requests at random moments, at three rates and at saturation, give
the cost of steps by their width and of encoding a token, with all that HTTP takes from the loop at such a rate; then
requests at two other rates are measured, and simulated with the same texts at the same moments. Writes measured.json
with --write. Bounded, on the loopback.
"""

import argparse
import asyncio
import json
import os
import platform
import random
import re
import sys
import tempfile
import urllib.request
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from deploy.capacity.day import MEASURED
from deploy.capacity.replica import Costs, Segment, simulate
from deploy.demo.__main__ import sentences
from deploy.demo.load import LOOPBACK, Body, Client, Report, put_load
from deploy.demo.processes import any_bundles, serving

WIDTHS = (1, 8, 48)  # requests in the air: alone, a few, saturated
CALIBRATION_LOADS = (0.2, 0.55, 0.85)  # of the measured saturation
LOADS = (0.4, 0.7)  # for the comparison
SETTINGS = {"DRAGOMAN_THREADS": "1", "DRAGOMAN_CACHE_BYTES": "0"}
MODULE = ("bench.servers.ours",)  # no single flight: equal sentences must all be decoded
COUNTERS = (
    STEPS := "dragoman_decode_step_seconds_count",
    ROWS := "dragoman_batch_rows_sum",
    ENCODER_RUNS := "dragoman_encode_seconds_count",
    ENCODING := "dragoman_encode_seconds_sum",
    BUSY := "dragoman_engine_busy_seconds_total",
    SOURCE_TOKENS := "dragoman_source_tokens_total",
    TARGET_TOKENS := "dragoman_target_tokens_total",
)
Sizes = list[tuple[int, int]]  # source and target tokens of each text


@dataclass(frozen=True)
class Sample:
    """A stretch of load: how the counters moved, and what the clients saw."""

    moved: dict[str, float]
    report: Report
    seconds: float

    @property
    def rows(self) -> float:
        return self.moved[ROWS] / self.moved[STEPS]

    @property
    def rate(self) -> float:
        return self.report.num_requests / self.seconds


@dataclass(frozen=True)
class Trial:
    """One stretch at random moments: the seconds to each answer, and what arrived when."""

    seconds: list[float]
    segments: list[Segment]


@dataclass(frozen=True)
class Run:
    """Seconds to the answer at a rate: the mean of all requests."""

    rate: float
    measured_seconds: float
    simulated_seconds: float

    @property
    def error(self) -> float:
        return self.simulated_seconds / self.measured_seconds - 1


def read_counters(port: int) -> dict[str, float]:
    with urllib.request.urlopen(f"http://{LOOPBACK}:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    return {name: sum(map(float, re.findall(rf"^{name}{{[^}}]*}} (\S+)$", text, re.MULTILINE))) for name in COUNTERS}


def stretch(port: int, bodies: list[Body], seconds: float, rate: float, width: int, seed: int = 0) -> Sample:
    before = read_counters(port)
    report = asyncio.run(put_load(port, bodies, rate, lambda _, t: t < seconds, seed, max_in_flight=width))
    after = read_counters(port)
    assert set(report.statuses) == {200}, report.statuses
    return Sample({name: after[name] - before[name] for name in COUNTERS}, report, seconds)


def fit(alone: Sample, samples: list[Sample]) -> Costs:
    """What steps took in stretches of different width, and an encoded token in all of them.

    Copying and searching count as the step's. Most sentences are encoded alone, or with few of their own length, at any
    rate: their cost grows with their tokens, and hardly depends on their company.
    """
    steps = [(s.rows, (s.moved[BUSY] - s.moved[ENCODING]) / s.moved[STEPS]) for s in samples]
    every = add(samples).moved
    encodings = [(0.0, 0.0), (every[SOURCE_TOKENS] / every[ENCODER_RUNS], every[ENCODING] / every[ENCODER_RUNS])]
    request = mean(alone.report.seconds) - alone.moved[BUSY] / alone.report.num_requests
    return Costs(tuple(sorted(steps)), tuple(sorted(encodings)), max(0.0, request))


async def lengths_of(port: int, bodies: list[Body]) -> list[int]:
    """Tokens that each text becomes; the same every time."""
    client, lengths = Client(port), []
    for body in bodies:
        _, content = await client.post("/v1/translate", body)
        translations = json.loads(content)["translations"]
        lengths.append(sum(segment["num_tokens"] for each in translations for segment in each["segments"]))
    client.close()
    return lengths


def arrivals(sizes: Sizes, rate: float, seconds: float, seed: int) -> list[Segment]:
    """The very texts and moments that `put_load` chooses."""
    order, due, segments = random.Random(seed), 0.0, []
    while due < seconds:
        source, target = sizes[order.randrange(len(sizes))]
        segments.append(Segment(due, source, target))
        due += order.expovariate(rate)
    return segments


def compare(port: int, bodies: list[Body], sizes: Sizes, rate: float, seconds: float, seed: int) -> Trial:
    """Requests at random moments, as they went, and as they are to be simulated."""
    sample = stretch(port, bodies, seconds, rate, width=10_000, seed=seed)
    return Trial(sample.report.seconds, arrivals(sizes, rate, seconds, seed))


def judge(rate: float, trials: list[Trial], costs: Costs) -> Run:
    """The mean of all rounds, measured and simulated."""
    measured = mean(seconds for trial in trials for seconds in trial.seconds)
    simulated = mean(seconds for trial in trials for seconds in simulate(trial.segments, costs).totals)
    return Run(rate, measured, simulated)


def add(samples: list[Sample]) -> Sample:
    """Stretches of one width as one."""
    moved = {name: sum(sample.moved[name] for sample in samples) for name in COUNTERS}
    report = Report()
    for sample in samples:
        report.statuses += sample.report.statuses
        report.seconds += sample.report.seconds
    return Sample(moved, report, sum(sample.seconds for sample in samples))


def measure(port: int, source: str, target: str, seconds: float, rounds: int) -> dict[str, Any]:
    """Calibrate and compare in turns, so that whatever else the machine does disturbs both alike."""
    bodies: list[Body] = [{"text": line, "source": source, "target": target} for line in sentences(source)]
    lengths = asyncio.run(lengths_of(port, bodies))
    probe = stretch(port, bodies, seconds, rate=1e6, width=WIDTHS[-1])
    per_token = probe.moved[SOURCE_TOKENS] / probe.moved[TARGET_TOKENS]
    sizes = [(max(1, round(length * per_token)), length) for length in lengths]
    rates = [load * probe.rate for load in LOADS]
    held: dict[int, list[Sample]] = {width: [] for width in WIDTHS}
    loaded: dict[float, list[Sample]] = {load * probe.rate: [] for load in CALIBRATION_LOADS}
    trials: dict[float, list[Trial]] = {rate: [] for rate in rates}
    for seed in range(rounds):
        for rate in loaded:  # by other seeds than the comparison's
            loaded[rate].append(stretch(port, bodies, 2 * seconds, rate, width=10_000, seed=1000 + seed))
        for width in WIDTHS:
            held[width].append(stretch(port, bodies, seconds, rate=1e6, width=width, seed=seed))
        for rate in rates:
            trials[rate].append(compare(port, bodies, sizes, rate, 2 * seconds, seed))
    samples = [add(each) for each in held.values()]
    alone, fullest = samples[0], samples[-1]
    costs = fit(alone, [*map(add, loaded.values()), fullest])
    return {
        "costs": asdict(costs),
        "source_tokens": round(fullest.moved[SOURCE_TOKENS] / fullest.report.num_requests, 2),
        "target_tokens": round(fullest.moved[TARGET_TOKENS] / fullest.report.num_requests, 2),
        "tokens_per_second_per_cpu": round(fullest.moved[TARGET_TOKENS] / fullest.seconds),
        "requests_per_second_per_cpu": round(fullest.rate, 1),
        "stretches": [_row(sample, width) for sample, width in zip(samples, WIDTHS, strict=True)],
        "runs": [{**asdict(run), "error": run.error} for run in (judge(rate, trials[rate], costs) for rate in rates)],
    }


def _row(sample: Sample, width: int) -> dict[str, float]:
    figures = {"requests_per_second": sample.rate, "rows": sample.rows, "seconds": mean(sample.report.seconds)}
    return {"in_flight": width, **{name: round(value, 4) for name, value in figures.items()}}


def machine() -> str:
    found = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return f"{found[1] if found else platform.machine()}, {os.cpu_count()} CPUs"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bundles", type=Path, help="by default the embedded ones")
    parser.add_argument("--source", default="pt")
    parser.add_argument("--target", default="en")
    parser.add_argument("--model", default="", help="a name for the page")
    parser.add_argument("--seconds", type=float, default=2.5, help="of each stretch")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--write", action="store_true", help="write measured.json")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bundles = arguments.bundles or any_bundles(Path(folder))
        with serving(Path(folder), SETTINGS, bundles, MODULE) as port:
            result = measure(port, arguments.source, arguments.target, arguments.seconds, arguments.rounds)
        result |= {"model": arguments.model or ", ".join(sorted(each.name for each in bundles.iterdir()))}
    result |= {"machine": machine()}
    if arguments.write:
        MEASURED.write_text(json.dumps(result, indent=2) + "\n", "utf-8")
    print(json.dumps(result, indent=2))
    worst = max(abs(run["error"]) for run in result["runs"])
    print(f"the simulator is off by at most {worst:.0%}")
    sys.exit(0 if worst <= 0.2 else 1)


if __name__ == "__main__":
    main()
