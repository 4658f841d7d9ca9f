"""`python -m tests.translation.placeholder_report [--bundles DIR] [--made]`: are things that must survive kept?

Translates our own sentences with placeholders (with `--made`, the five hundred made ones), by the service's own
translator and real bundles. Prints by kind how many sentences kept everything at once, kept it by a second attempt,
lost something and say so, or lost something silently. Exits with 1 when there is one of the last kind.
"""

import argparse
import asyncio
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from prometheus_client import CollectorRegistry
from rich.console import Console
from rich.progress import track
from rich.table import Table

from dragoman.service.assembly import EMBEDDED, build_parts
from dragoman.service.settings import Settings
from dragoman.service.telemetry.metrics import Metrics
from dragoman.service.translation.contract import Segment
from tests.translation.placeholder_cases import Case, Verdict, measure, placeholder_cases, seen, written_cases

COLUMNS: dict[Verdict, str] = {
    "kept": "kept at once",
    "retried": "kept by a second attempt",
    "reported": "lost with a warning",
    "silent": "lost silently",
}
Result = tuple[Case, Verdict, tuple[Segment, ...]]


def translate(bundles: Path, cases: Sequence[Case], beam_size: int) -> list[Result]:
    settings = Settings(bundles=bundles, threads=1)
    parts = build_parts(settings, Metrics(CollectorRegistry()), time.monotonic)
    try:
        report = parts.catalog.reload()
        if report.failed:
            sys.exit(report.failed[0])
        tracked = track(cases, "translating", console=Console(stderr=True))
        return asyncio.run(measure(parts.translator, tracked, beam_size))
    finally:
        parts.catalog.close()


def kind_of(case: Case) -> str:
    kinds = {"glossary"} if case.glossary else set()
    kinds |= {kind for _, kind in seen(case.text)}
    return next(iter(kinds)) if len(kinds) == 1 else "several" if kinds else "others"


def table_of(results: Sequence[Result]) -> Table:
    counts = Counter((kind_of(case), verdict) for case, verdict, _ in results)
    table = Table("kind", "sentences", *COLUMNS.values())
    for kind in dict.fromkeys(kind_of(case) for case, _, _ in results):
        of_kind = [counts[kind, verdict] for verdict in COLUMNS]
        table.add_row(kind, *map(str, [sum(of_kind), *of_kind]))
    table.add_section()
    totals = Counter(verdict for _, verdict, _ in results)
    whole = [f"{totals[verdict]} ({totals[verdict] / len(results):.1%})" for verdict in COLUMNS]
    table.add_row("all", str(len(results)), *whole)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bundles", type=Path, default=EMBEDDED, help="with pt-en and en-pt (default: the embedded)")
    parser.add_argument("--made", action="store_true", help="the five hundred made from templates")
    parser.add_argument("--beam-size", type=int, default=1)
    parser.add_argument("--show", type=int, default=10, help="how many that were not kept at once to print")
    arguments = parser.parse_args()
    cases = placeholder_cases() if arguments.made else written_cases()
    results = translate(arguments.bundles, cases, arguments.beam_size)
    console = Console()
    console.print(table_of(results))
    imperfect = sorted((each for each in results if each[1] != "kept"), key=lambda each: list(COLUMNS).index(each[1]))
    for case, verdict, segments in imperfect[::-1][: arguments.show]:
        print(f"{COLUMNS[verdict]}: {case.text} -> {' | '.join(segment.text for segment in segments)}")
    sys.exit(1 if any(verdict == "silent" for _, verdict, _ in results) else 0)


if __name__ == "__main__":
    main()
