"""Our server and its peers under open-loop load: latency against rate, and the highest rate with p99 under 500 ms.

    python -m bench.served [quick | full] [--sources FILE]

All servers run on one core (the one that is asked works, the others sleep) and the generator on the other. Peers have
the same weights in int8 and the same tokenizer; requests are HTTP with the same bodies, drawn from the same seeds:

- the same engine of ours with joining switched off: whole batches;
- CTranslate2 behind FastAPI with request-level dynamic batching, the usual design, at its best setting;
- CTranslate2 behind FastAPI, one request after another, as LibreTranslate does it.

What differs: ours normalizes, splits, looks for placeholders, checks, measures and answers with scores and segments;
the peers answer texts. Ours stops a sentence that repeats itself; CTranslate2 goes on to the limit of its length.
"""

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import uvloop

from bench.capacity import highest_rate
from bench.harness import Cell, Figure, Profile, Ratio, Report, Table, command, pinned, slower, spread, steps
from bench.load import GIVE_UP_SECONDS, Plan, Probe, poisson, probe
from bench.processes import Command, Server, ours, peer, serving
from bench.questions import questions, whole_sentences, wire
from dragoman.service.bundles.manifest import Bundle, read_bundle

LIMIT_SECONDS = 0.5
SHARE_OF_CAPACITY = 0.8
OURS, WHOLE, DYNAMIC, ONE = "ours", "ours, whole batches", "CTranslate2, dynamic batches", "CTranslate2, one by one"
RATE_BAR, LATENCY_BAR = 2.0, 1 / 3
SETTLED_SECONDS = 0.1
WARM_RATE = 100.0
TRIES = 5  # of a probe whose generator lagged
Setting = tuple[int, float]  # texts, milliseconds


@dataclass(frozen=True)
class Effort:
    probe_seconds: float
    max_requests: int  # in one probe
    rounds: int
    precision: float  # of a highest rate
    settings: Sequence[Setting]  # of dynamic batching
    curve: Sequence[float]  # shares of the dynamic batcher's capacity

    @classmethod
    def of(cls, profile: Profile) -> "Effort":
        rounds = profile.runs or profile.choose(1, 3)
        if profile.quick:
            return cls(2.0, 2000, rounds, 1.2, [(32, 2.0)], [])
        grid = [(texts, wait) for texts in (16, 32, 64) for wait in (0.0, 2.0, 10.0)]
        return cls(8.0, 8_000, rounds, 1.08, grid, [0.25, 0.5, 0.65, 0.9, 1.0, 1.2])


class LateGeneratorError(RuntimeError):
    """The load could not be made on time: this machine is too busy to say anything about a server."""


@dataclass
class Load:
    """Puts load on servers and remembers what came of it."""

    servers: Mapping[str, Server]
    bundle: Bundle
    texts: Sequence[str]
    effort: Effort
    seen: dict[str, list[Probe]] = field(default_factory=dict)
    cpu: dict[str, list[float]] = field(default_factory=dict)  # milliseconds of a server's CPU for a request
    num_void: int = 0

    def warm_up(self) -> None:
        """Every server has seen a crowd before it is measured."""
        for server in self.servers.values():
            uvloop.run(probe(server.port, self._plan(WARM_RATE, seed=-1, seconds=1.0)))

    def at(self, name: str, rate: float, seed: int, stop_early: bool) -> Probe:
        """One probe that counts; those in which the generator lagged are made again."""
        server = self.servers[name]
        for _ in range(TRIES):
            cpu = server.cpu_seconds()
            found = uvloop.run(probe(server.port, self._plan(rate, seed), LIMIT_SECONDS if stop_early else None))
            if found.stopped_early or found.unanswered:
                settle(server)
            if not found.void:
                self._remember(name, found, server.cpu_seconds() - cpu)
                return found
            self.num_void += 1
        raise LateGeneratorError(
            f"the generator sent late {TRIES} times at {rate:.0f} requests per second; free a core"
        )

    def _remember(self, name: str, found: Probe, cpu_seconds: float) -> None:
        self.seen.setdefault(name, []).append(found)
        if not (found.stopped_early or found.unanswered or found.errors):
            self.cpu.setdefault(name, []).append(1000 * cpu_seconds / len(found.latencies))

    def _plan(self, rate: float, seed: int, seconds: float | None = None) -> Plan:
        times = poisson(rate, seconds or self.effort.probe_seconds, self.effort.max_requests, seed)
        pair = self.bundle.pairs[0]
        asked = questions(self.texts, len(times), seed)
        return Plan(rate, times, [wire(question, pair.source, pair.target) for question in asked])

    def capacity(self, name: str, start: float, growth: float, seed: int) -> float:
        def sustains(rate: float) -> bool:
            return self.at(name, rate, seed, stop_early=True).meets(LIMIT_SECONDS)

        return highest_rate(sustains, start, growth, self.effort.precision)


def settle(server: Server) -> None:
    """Until what was left of a probe is worked off: a request is answered at once again."""
    for _ in range(100):
        began = time.perf_counter()
        server.ask("Bom dia!")
        if time.perf_counter() - began < SETTLED_SECONDS:
            return


@dataclass
class Findings:
    """One value for every round, by server."""

    capacity: dict[str, list[float]] = field(default_factory=dict)  # requests per second
    p99: dict[str, list[float]] = field(default_factory=dict)  # milliseconds, at a share of the dynamic batcher's


def run(profile: Profile) -> Report:
    effort, bundle = Effort.of(profile), read_bundle(profile.bundle, check_hashes=False)
    texts = whole_sentences(profile, bundle)
    total = 3 + len(effort.settings) + effort.rounds * 2 + len(effort.curve)
    with tempfile.TemporaryDirectory() as folder, steps(profile, "served", total) as begin:
        begin("the twin's weights")
        twin = Path(folder) / "twin"
        subprocess.run([sys.executable, "-m", "bench.ctranslate2_twin", str(profile.model), str(twin)], check=True)
        with pinned(1):
            best = best_setting(twin, bundle, texts, effort, begin)
            commands = all_servers(twin, profile.bundle, best)
            begin("starting the servers")
            with serving(commands, core=0) as servers:
                load = Load(servers, bundle, texts, effort)
                load.warm_up()
                agreement = agree(servers, texts[:: max(1, len(texts) // 40)])
                findings = measure(load, begin)
    return report(load, findings, best, agreement)


def all_servers(twin: Path, bundle: Path, best: Setting) -> dict[str, Command]:
    return {
        OURS: ours(bundle),
        WHOLE: ours(bundle, "--whole-batches"),
        DYNAMIC: dynamic(twin, bundle, best),
        ONE: peer("one_by_one", twin, bundle),
    }


def dynamic(twin: Path, bundle: Path, setting: Setting) -> Command:
    return peer("ctranslate2_server", twin, bundle, "--max-texts", str(setting[0]), "--wait-ms", str(setting[1]))


def best_setting(
    twin: Path, bundle: Bundle, texts: Sequence[str], effort: Effort, begin: Callable[[str], None]
) -> Setting:
    """Of dynamic batching: the one that sustains the highest rate."""
    if len(effort.settings) == 1:
        return effort.settings[0]
    found: dict[Setting, float] = {}
    for setting in effort.settings:
        begin(f"dynamic batches of {setting[0]} or {setting[1]} ms")
        with serving({DYNAMIC: dynamic(twin, bundle.path, setting)}, core=0) as servers:
            load = Load(servers, bundle, texts, effort)
            start = max(found.values(), default=0.0) or 100.0
            found[setting] = load.capacity(DYNAMIC, start, 1.3 if found else 2.0, seed=0)
    return max(found, key=lambda setting: found[setting])


def agree(servers: Mapping[str, Server], texts: Sequence[str]) -> float:
    """How many sentences ours and the twin translate alike: a server that translates nonsense would be no peer."""
    return statistics.mean(servers[OURS].ask(text) == servers[DYNAMIC].ask(text) for text in texts)


def measure(load: Load, begin: Callable[[str], None]) -> Findings:
    found = Findings()
    for number in range(load.effort.rounds):
        begin(f"highest rates, round {number + 1}")
        capacities(load, found, number)
        begin(f"at {SHARE_OF_CAPACITY:.0%}, round {number + 1}")
        rate = SHARE_OF_CAPACITY * statistics.median(found.capacity[DYNAMIC])
        for name in _in_turn(load.servers, number):
            answer = load.at(name, rate, seed=1000 + number, stop_early=False)
            found.p99.setdefault(name, []).append(1000 * answer.percentile(99))
    for fraction in load.effort.curve:
        begin(f"at {fraction:.0%}")
        rate = fraction * statistics.median(found.capacity[DYNAMIC])
        for name in load.servers:
            if rate < 1.3 * statistics.median(found.capacity[name]):  # beyond it there is nothing but backlog
                load.at(name, rate, seed=2000, stop_early=False)
    return found


def capacities(load: Load, found: Findings, number: int) -> None:
    """In the first round a search from afar; then from where the last round ended."""
    for name in _in_turn(load.servers, number):
        before = found.capacity.get(name)
        start = statistics.median(before) if before and before[-1] else 100.0
        rate = load.capacity(name, start, 1.25 if before else 2.0, seed=number)
        found.capacity.setdefault(name, []).append(rate)


def _in_turn(servers: Mapping[str, Server], number: int) -> list[str]:
    return list(servers) if number % 2 == 0 else list(reversed(list(servers)))


def report(load: Load, found: Findings, best: Setting, agreement: float) -> Report:
    probes = [one for seen in load.seen.values() for one in seen]
    return Report(
        "served",
        "Served over HTTP: open-loop Poisson arrivals, server on one core, load on the other",
        tables=[_capacity_table(load, found), _probe_table(load)],
        ratios=_ratios(found),
        figures=_figures(load),
        notes=[
            f"Arrivals were drawn beforehand and sent whether or not answers came; latency counts from the scheduled "
            f"arrival. Probes last {load.effort.probe_seconds} s; errors and missing answers count as "
            f"{GIVE_UP_SECONDS:.0f} s. A rate counts when its p99 is under {1000 * LIMIT_SECONDS:.0f} ms.",
            f"Dynamic batches of CTranslate2: at most {best[0]} texts or {best[1]} ms"
            + (", the best of the settings tried." if len(load.effort.settings) > 1 else ", not swept in this run."),
            f"Generator: p99 of its lag at most {1000 * max(one.lag for one in probes):.1f} ms, at most "
            f"{max(one.cpu_share for one in probes):.0%} of its core; {load.num_void} probes void because it lagged.",
            f"{agreement:.0%} of the sentences asked of both came out the same from ours and from CTranslate2.",
            "Ours does more for an answer (segments, placeholders, scores, metrics, limits); the peers answer texts.",
        ],
    )


def _capacity_table(load: Load, found: Findings) -> Table:
    columns = ["server", "highest rate, requests/s", "p99 at 80 % of dynamic batches, ms", "CPU ms for a request"]
    rows: list[list[Cell]] = [
        [name, spread(found.capacity[name]), spread(found.p99[name]), spread(load.cpu.get(name, [0.0]))]
        for name in load.servers
    ]
    return Table(f"Highest rate with p99 under {1000 * LIMIT_SECONDS:.0f} ms", columns, rows)


def _whole_probes(load: Load, name: str) -> list[Probe]:
    return sorted((one for one in load.seen[name] if not one.stopped_early), key=lambda one: one.rate)


def _probe_table(load: Load) -> Table:
    rows: list[list[Cell]] = [
        [name, one.rate, len(one.latencies), *(1000 * one.percentile(p) for p in (50, 95, 99)), one.errors]
        for name in load.seen
        for one in _whole_probes(load, name)
    ]
    columns = ["server", "requests/s", "requests", "p50 ms", "p95 ms", "p99 ms", "errors"]
    return Table("Latency against rate", columns, rows)


def _figures(load: Load) -> list[Figure]:
    curves = {
        percent: {
            name: [[one.rate, 1000 * one.percentile(percent)] for one in _whole_probes(load, name)]
            for name in load.seen
        }
        for percent in (50, 95, 99)
    }
    return [
        Figure(
            f"served-p{percent}",
            f"p{percent} latency against rate",
            "requests per second",
            f"p{percent}, ms",
            series,
            log_y=True,
            lines={"limit": 1000 * LIMIT_SECONDS} if percent == 99 else {},
        )
        for percent, series in curves.items()
    ]


def _ratios(found: Findings) -> list[Ratio]:
    ratios = []
    for name in (DYNAMIC, WHOLE, ONE):
        bars = (RATE_BAR, LATENCY_BAR) if name == DYNAMIC else (None, None)
        ratios.append(_rates("highest rate with p99 under 500 ms", name, found.capacity, bars[0]))
        ratios.append(
            slower(
                "p99 at 80 % of the dynamic batcher's capacity", name, found.p99[OURS], found.p99[name], "ms", bars[1]
            )
        )
    return ratios


def _rates(what: str, name: str, rates: Mapping[str, Sequence[float]], bar: float | None) -> Ratio:
    pairs = sorted(mine / theirs for mine, theirs in zip(rates[OURS], rates[name], strict=True))
    mine, theirs = (statistics.median(rates[side]) for side in (OURS, name))
    return Ratio(what, name, mine, theirs, "requests/s", statistics.median(pairs), pairs[0], pairs[-1], bar, True)


if __name__ == "__main__":
    command(run, __doc__)
