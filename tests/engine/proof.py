"""`python -m tests.engine.proof BUNDLE SOURCES [--rows 10000]`: the first promise at scale, on a real bundle.

Real sentences, each greedy and by a beam of 4, are decoded alone: one job in the engine. Then all of them again in
random crowds of up to 64 rows, greedy and beams mixed, each job arriving at a turn of its own; and again in other
crowds, under other capacities and with a queue. Tokens, scores and the log-probability of every token of every
hypothesis are compared bit for bit. A beam of 4 counts as 4 rows. Exits with 1 when anything differs.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from dragoman.service.bundles.manifest import Bundle, read_bundle
from dragoman.service.engine.job import DecodingOptions, DecodingRules, Job
from dragoman.service.engine.loop import Engine
from dragoman.service.engine.runner import OrtRunner
from dragoman.service.engine.seams import SilentObserver
from dragoman.service.engine.sessions import OrtSessions
from dragoman.service.translation.tokenizer import load_tokenizer
from tests.engine.crowds import answer, play

BEAM = 4
Advance = Callable[[int], None]
Answers = dict["Asked", tuple[object, ...]]


@dataclass(frozen=True)
class Asked:
    """One sentence to decode one way; equal ones must come out equal."""

    source_ids: tuple[int, ...]
    width: int

    def job(self) -> Job:
        return Job(self.source_ids, DecodingOptions(self.width, n_best=self.width, log_probs=True))


@dataclass(frozen=True)
class Company:
    """How crowds are made up: `max_rows` the batch holds, up to `most_rows` come at random within `turns`."""

    name: str
    max_rows: int
    most_rows: int
    turns: int
    seed: int


ALONE = "alone"
COMPANIES = (
    Company("crowds of up to 64 rows", max_rows=64, most_rows=64, turns=12, seed=1),
    Company("others, with a queue", max_rows=64, most_rows=256, turns=20, seed=2),
    Company("others, of up to 23 rows", max_rows=23, most_rows=60, turns=30, seed=3),
)


@dataclass
class Steps(SilentObserver):
    """Counts what the engine runs."""

    sizes: list[int] = field(default_factory=list)  # rows of each step

    def stepped(self, seconds: Sequence[float], rows: int, tokens: int) -> None:
        self.sizes += [rows] * len(seconds)

    def __str__(self) -> str:
        mean = sum(self.sizes) / len(self.sizes)
        return f"{len(self.sizes)} steps of {min(self.sizes)} to {max(self.sizes)} rows, {mean:.1f} on average"


def read_sources(bundle: Bundle, path: Path, count: int) -> list[tuple[int, ...]]:
    """So many different sentences, evenly from the file, as the service would encode them."""
    tokenizer, prefix = load_tokenizer(bundle), bundle.pairs[0].source_prefix_ids
    texts = [text for text in path.read_text("utf-8").splitlines() if text.strip()]
    encoded = dict.fromkeys((*prefix, *tokenizer.encode([text]), bundle.special_ids.eos) for text in texts)
    usable = [ids for ids in encoded if len(ids) <= bundle.limits.max_source_tokens]
    return usable[:: max(1, len(usable) // count)][:count]


def crowds(jobs: Sequence[Asked], company: Company) -> Iterator[list[Asked]]:
    """All jobs in random order, in crowds of random size."""
    rng = random.Random(company.seed)
    waiting = rng.sample(jobs, len(jobs))
    while waiting:
        rows, crowd = rng.randint(2, company.most_rows), list[Asked]()
        while waiting and sum(asked.width for asked in crowd) + waiting[-1].width <= max(rows, BEAM):
            crowd.append(waiting.pop())
        yield crowd


def decode_alone(sessions: OrtSessions, jobs: Sequence[Asked], steps: Steps, advance: Advance) -> Answers:
    engine = Engine([OrtRunner(sessions, BEAM)], DecodingRules.of(sessions.bundle), observer=steps)
    answers = {}
    for asked in jobs:
        answers[asked] = answer(play(engine, [(asked.job(), 0)])[0])
        advance(1)
    return answers


def decode_in_company(
    sessions: OrtSessions, jobs: Sequence[Asked], company: Company, steps: Steps, advance: Advance
) -> Answers:
    engine = Engine([OrtRunner(sessions, company.max_rows)], DecodingRules.of(sessions.bundle), observer=steps)
    rng, answers = random.Random(company.seed), {}
    for crowd in crowds(jobs, company):
        found = play(engine, [(asked.job(), rng.randrange(company.turns)) for asked in crowd])
        answers |= zip(crowd, map(answer, found), strict=True)
        advance(len(crowd))
    return answers


def num_rows(jobs: Sequence[Asked]) -> int:
    return sum(asked.width for asked in jobs)


def prove(sessions: OrtSessions, jobs: Sequence[Asked], console: Console) -> int:
    """Decode alone and in every company; prints what was run, returns how many jobs came out differently."""
    different = 0
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:

        def tracked(name: str) -> Advance:
            task = progress.add_task(name, total=len(jobs))
            return lambda count: progress.advance(task, count)

        steps = Steps()
        expected = decode_alone(sessions, jobs, steps, tracked(ALONE))
        print(f"{ALONE}: {num_rows(jobs)} rows, {steps}", flush=True)
        for company in COMPANIES:
            steps = Steps()
            found = decode_in_company(sessions, jobs, company, steps, tracked(company.name))
            differing = [asked for asked in jobs if found[asked] != expected[asked]]
            different += len(differing)
            print(f"{company.name}: {num_rows(jobs)} rows, {steps}, {num_rows(differing)} rows differ", flush=True)
            for asked in differing[:3]:
                print(f"  beam {asked.width}, source {asked.source_ids}:\n  {expected[asked]}\n  {found[asked]}")
    return different


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("sources", type=Path, help="a sentence a line, in the bundle's source language")
    parser.add_argument("--rows", type=int, default=10_000, help="decoder rows, at least")
    arguments = parser.parse_args()
    bundle = read_bundle(arguments.bundle)
    sources = read_sources(bundle, arguments.sources, -(-arguments.rows // (1 + BEAM)))
    jobs = [Asked(source, width) for source in sources for width in (1, BEAM)]
    if num_rows(jobs) < arguments.rows:
        sys.exit(f"{arguments.sources} has {len(sources)} usable sentences: too few for {arguments.rows} rows")
    console = Console(stderr=True)
    different = prove(OrtSessions(bundle, threads=1, provider="cpu"), jobs, console)
    print(f"{len(sources)} sentences, {num_rows(jobs)} rows, {1 + len(COMPANIES)} ways each: {different} jobs differ")
    sys.exit(1 if different else 0)


if __name__ == "__main__":
    main()
