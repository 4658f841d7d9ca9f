"""Every expression that somebody will look at: the dashboard's panels, the recording rules, the alerts.

`evaluate` asks a real Prometheus for each and says which came back empty. An alert is silent when all is well, so its
comparison is removed first: what is compared must be there.
"""

import json
import math
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from deploy.prometheus.render import RULES

DASHBOARD = Path(__file__).parents[1] / "grafana" / "dashboard.json"
COMPARISON = re.compile(r"\s(?:>|<|>=|<=|==|!=)\s[^()\"]*$")
JOINT = re.compile(r"\n(?:and|or)\n")
VARIABLES = {"$namespace": ".*", "$instance": ".*", "$pair": ".*"}


@dataclass(frozen=True)
class Query:
    where: str  # for people: the panel, rule or alert
    expression: str
    legend: str = ""


Series = dict[str, list[tuple[float, float]]]  # by legend: (time, value)


def panel_queries(rate_interval: str, dashboard: Path = DASHBOARD) -> Iterator[Query]:
    for panel in json.loads(dashboard.read_text("utf-8"))["panels"]:
        for target in panel.get("targets", ()):
            expression = target["expr"].replace("$__rate_interval", rate_interval)
            for variable, value in VARIABLES.items():
                expression = expression.replace(variable, value)
            yield Query(f"panel {panel['title']}", expression, target["legendFormat"])


def rules(kind: str) -> Iterator[dict[str, str]]:
    for path in RULES:
        for group in yaml.safe_load(path.read_text("utf-8"))["groups"]:
            yield from (rule for rule in group["rules"] if kind in rule)


def recording_queries() -> Iterator[Query]:
    for rule in rules("record"):
        yield Query(f"rule {rule['record']}", rule["record"])


def alert_queries() -> Iterator[Query]:
    """What each alert compares, without the comparisons."""
    for rule in rules("alert"):
        for part in JOINT.split(rule["expr"].strip()):
            compared, count = COMPARISON.subn("", part)
            assert count == 1, f"{rule['alert']}: one comparison a line, so that it can be dropped"
            yield Query(f"alert {rule['alert']}", compared)


class Prometheus:
    def __init__(self, url: str) -> None:
        self._url = url

    def range(self, query: Query, start: float, end: float, step: float) -> Series:
        """Values that are numbers; a series of nothing else is left out."""
        answer = self._get("query_range", query=query.expression, start=start, end=end, step=step)
        found: Series = {}
        for series in answer["result"]:
            values = [(float(at), float(value)) for at, value in series["values"]]
            numbers = [(at, value) for at, value in values if math.isfinite(value)]
            if numbers:
                found[_name(query.legend, series["metric"])] = numbers
        return found

    def sick_rules(self) -> list[str]:
        groups = self._get("rules")["groups"]
        return [
            f"{rule['name']}: {rule.get('lastError')}" for g in groups for rule in g["rules"] if rule["health"] != "ok"
        ]

    def _get(self, what: str, **parameters: object) -> dict[str, Any]:
        url = f"{self._url}/api/v1/{what}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"Prometheus refuses {parameters.get('query')}: {error.read().decode()}") from None


def _name(legend: str, labels: dict[str, str]) -> str:
    return re.sub(r"\{\{(\w+)\}\}", lambda found: labels.get(found[1], ""), legend) or str(labels)


def evaluate(server: Prometheus, start: float, end: float, rate_interval: str) -> tuple[dict[Query, Series], list[str]]:
    """The series of every query, and what came back empty."""
    queries = [*panel_queries(rate_interval), *recording_queries(), *alert_queries()]
    found = {query: server.range(query, start, end, step=1.0) for query in queries}
    empty = [f"{query.where}: {query.expression}" for query, series in found.items() if not series]
    return found, empty + server.sick_rules()
