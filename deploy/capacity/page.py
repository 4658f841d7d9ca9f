"""`python -m deploy.capacity.page`: put the measured figures into this directory's README.md, between its marks."""

import math
import re
from pathlib import Path

from deploy.capacity.day import Curve, Measured, curve, read_measured

PAGE = Path(__file__).parent / "README.md"
MARKS = ("<!-- measured -->\n", "<!-- end -->\n")
CPUS = 2  # of a replica, as in the Deployment
GOOD_LOAD = 0.65  # of the saturation: beyond it waits grow faster than the load
RATES = (10, 1_000, 100_000)


def replicas_for(rate: float, one: Curve) -> int:
    """For this many requests per second, with one replica to spare."""
    return math.ceil(rate / (CPUS * one.saturation * GOOD_LOAD)) + 1


def good_demand(measured: Measured) -> float:
    """Source tokens per second of a replica at the good load: the autoscaler's target."""
    return CPUS * GOOD_LOAD * curve(measured).saturation * measured.source_tokens


def table(measured: Measured) -> str:
    one = curve(measured)
    lines = [
        f"Model: {measured.model}. Machine: {measured.machine}. Texts: {measured.source_tokens:.0f} tokens in, "
        f"{measured.target_tokens:.0f} out, one sentence a request, greedy, no cache.",
        "",
        f"| load of a replica ({CPUS} CPUs) | requests/s | tokens written/s | mean time to answer | tokens in flight |",
        "|---|---|---|---|---|",
    ]
    for load, seconds, tokens in one.points:
        rate = load * CPUS * one.saturation
        written = rate * measured.target_tokens
        lines.append(f"| {load:.0%} | {rate:.0f} | {written:.0f} | {seconds * 1000:.0f} ms | {CPUS * tokens:.0f} |")
    lines += ["", "| requests per second | replicas, one of them spare | CPUs |", "|---|---|---|"]
    for rate in RATES:
        count = replicas_for(rate, one)
        lines.append(f"| {rate:,} | {count:,} | {count * CPUS:,} |")
    lines += [
        "",
        f"Source tokens per second at {GOOD_LOAD:.0%}, the autoscaler's target: {good_demand(measured):,.0f}.",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    begin, end = MARKS
    text = PAGE.read_text("utf-8")
    PAGE.write_text(re.sub(f"(?s){begin}.*{end}", lambda _: begin + table(read_measured()) + end, text), "utf-8")


if __name__ == "__main__":
    main()
