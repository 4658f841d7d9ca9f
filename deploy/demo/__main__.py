"""`python -m deploy.demo [--seconds 45] [--rate 20] [--out build/dashboard.png]`: the metrics, seen working.

A server, a real Prometheus with our rules, and a bounded load, all on the loopback. Every expression of the dashboard
and of the rules must return data; then the dashboard is drawn from it. Exits with 1 when one is empty.
"""

import argparse
import asyncio
import csv
import json
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import yaml

from deploy.demo.drawing import draw
from deploy.demo.load import LOOPBACK, Body, Report, put_load
from deploy.demo.processes import ROOT, any_bundles, missing_tools, prometheus, serving
from deploy.demo.queries import Prometheus, Query, Series, evaluate
from deploy.prometheus.render import RULES

SENTENCES = ROOT / "tests" / "data" / "sentences.tsv"
RATE_INTERVAL = "10s"


def sentences(language: str = "pt") -> list[str]:
    with SENTENCES.open(encoding="utf-8", newline="") as file:
        return [row[language] for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)]


def served_pair(port: int) -> tuple[str, str]:
    """The first pair that the server translates."""
    with urllib.request.urlopen(f"http://{LOOPBACK}:{port}/v1/languages", timeout=10) as answer:
        pair = json.load(answer)["pairs"][0]
    return pair["source"], pair["target"]


def traffic(source: str, target: str) -> list[Body]:
    """One-line requests, some with a beam, some small documents, some asked for again and again."""
    lines = sentences(source)
    asked: list[Body] = [{"text": line, "source": source, "target": target} for line in lines]
    asked += [{**body, "beam_size": 4} for body in asked[::8]]
    documents = ["\n".join(lines[at : at + 12]) for at in range(0, len(lines), 12)]
    asked += [{"text": document, "source": source, "target": target} for document in documents]
    return asked + asked[:3] * 20


async def put_traffic(port: int, rate: float, seconds: float) -> Report:
    def go_on(report: Report, elapsed: float) -> bool:
        return elapsed < seconds

    source, target = served_pair(port)
    bad: list[Body] = [{"text": "a", "source": source, "target": "xx"}, {"text": "a"}]
    languages = {"source_lang": source.upper(), "target_lang": target.upper()}
    official: list[Body] = [{"text": [line], **languages} for line in sentences(source)[:50]]
    async with asyncio.TaskGroup() as group:
        native = group.create_task(put_load(port, traffic(source, target), rate, go_on))
        group.create_task(put_load(port, official, rate / 10, go_on, seed=1, path="/v2/translate"))
        group.create_task(put_load(port, bad, rate / 50, go_on, seed=2))
    return native.result()


def write_config(work: Path, port: int) -> Path:
    path = work / "prometheus.yaml"
    scrape = {"job_name": "dragoman", "static_configs": [{"targets": [f"{LOOPBACK}:{port}"]}]}
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(rules) for rules in RULES],
        "scrape_configs": [scrape],
    }
    path.write_text(yaml.safe_dump(config))
    return path


def demonstrate(
    work: Path, seconds: float, rate: float, bundles: Path
) -> tuple[dict[Query, Series], list[str], Report, float]:
    """Every query's series, the empty ones, the load's report, and when it began."""
    with serving(work, bundles=bundles) as port, prometheus(write_config(work, port), work) as url:
        start = time.time()
        report = asyncio.run(put_traffic(port, rate, seconds))
        found, empty = evaluate(Prometheus(url), start, time.time(), RATE_INTERVAL)
    return found, empty, report, start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=45.0)
    parser.add_argument("--rate", type=float, default=20.0, help="requests per second")
    parser.add_argument("--bundles", type=Path, help="by default the embedded ones")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "dashboard.png")
    arguments = parser.parse_args()
    if missing := missing_tools("prometheus"):
        sys.exit(f"missing: {', '.join(missing)} (Debian: apt install prometheus)")
    with tempfile.TemporaryDirectory() as folder:
        bundles = arguments.bundles or any_bundles(Path(folder))
        found, empty, report, start = demonstrate(Path(folder), arguments.seconds, arguments.rate, bundles)
        names = ", ".join(sorted(path.name for path in bundles.iterdir()))
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    caption = f"{report.num_requests} requests in {arguments.seconds:.0f} s on bundles {names}, seconds since the start"
    draw(found, start, arguments.out, caption)
    print(f"{caption}; {dict(report.statuses)}")
    print(
        f"{len(found)} expressions evaluated, {len(empty)} without data; drawn to {arguments.out}", *empty, sep="\n  "
    )
    sys.exit(1 if empty else 0)


if __name__ == "__main__":
    main()
