"""The Prometheus rules: good by promtool, tested by promtool, about metrics that exist, with a runbook each."""

import re
import shutil
import subprocess
from functools import lru_cache
from pathlib import Path

import pytest
import yaml

from deploy.demo.queries import alert_queries, panel_queries, rules
from deploy.prometheus.render import HERE, RULES
from dragoman.service.telemetry.metrics import Metrics

README = HERE.parent / "README.md"
TESTS = HERE / "rules.test.yaml"
OF_PROMETHEUS = {"up"}


def promtool(*arguments: object) -> None:
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed (Debian: apt install prometheus)")
    answer = subprocess.run(["promtool", *map(str, arguments)], capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stdout + answer.stderr


@lru_cache
def known_series() -> frozenset[str]:
    """Every name that a query may use: what the server exposes, what the rules record, and Prometheus's own."""
    metrics = Metrics(apis=("native",))
    metrics.observer("pt-en")
    metrics.set_bundles([("pt-en", "pt-en", "1", "int8")])
    exposed = re.findall(r"^([a-zA-Z_]\w*)[{ ]", metrics.exposition("")[0].decode(), re.MULTILINE)
    gauges = {row.name for row in metrics.describe() if row.kind == "gauge"}  # some have no child without an engine
    return frozenset({*exposed, *gauges, *OF_PROMETHEUS, *(rule["record"] for rule in rules("record"))})


def names_in(expression: str) -> set[str]:
    """Whatever looks like one of our series."""
    words = set(re.findall(r"[a-zA-Z_:][\w:]*", re.sub(r'"[^"]*"', '""', expression)))
    return {word for word in words if "dragoman" in word or word.startswith("process_") or word in OF_PROMETHEUS}


def test_rules_are_good() -> None:
    """promtool's own opinion."""
    promtool("check", "rules", *RULES)


def test_rules_do_what_they_say() -> None:
    """Every alert fires when it should and not before; every recorded series has the value worked out by hand."""
    promtool("test", "rules", TESTS)


@pytest.mark.parametrize("rule", [*rules("record"), *rules("alert")], ids=lambda rule: next(iter(rule.values())))
def test_every_rule_uses_series_that_exist(rule: dict[str, str]) -> None:
    """A misspelt metric makes an alert that never fires."""
    used = names_in(rule["expr"])
    assert used
    assert used <= known_series()


def test_every_panel_uses_series_that_exist() -> None:
    """A misspelt metric makes an empty panel, found during an incident."""
    for query in panel_queries("1m"):
        assert names_in(query.expression), query
        assert names_in(query.expression) <= known_series(), query


def test_every_rule_is_tested() -> None:
    """A rule without a unit test is an opinion."""
    tests = TESTS.read_text()
    for rule in (*rules("record"), *rules("alert")):
        name = rule.get("record") or rule["alert"]
        assert name in tests, name


@pytest.mark.parametrize("rule", [*rules("alert")], ids=lambda rule: rule["alert"])
def test_every_alert_says_what_to_do(rule: dict[str, dict[str, str]]) -> None:
    """Whoever is woken reads the alert first, then the runbook."""
    assert {"summary", "description", "runbook"} <= set(rule["annotations"])
    assert rule["labels"]["severity"] in ("page", "ticket")
    assert f"#### {rule['alert']}" in README.read_text("utf-8")


def test_every_alert_compares_something() -> None:
    """Its comparisons can be dropped one by one, which the demonstration does."""
    assert len([*alert_queries()]) > len([*rules("alert")])
    for query in alert_queries():
        assert not re.search(r"[<>]=? [\d.]+ ?\*? ?[\d.]*$", query.expression), query


def test_panels_are_good_promql(tmp_path: Path) -> None:
    """Grafana shows a bad query as an empty panel with a small red corner."""
    queries = [query.expression for query in (*panel_queries("1m"), *alert_queries())]
    recorded = [{"record": f"panel:{number}", "expr": query} for number, query in enumerate(queries)]
    group = {"name": "panels", "rules": recorded}
    (tmp_path / "panels.yaml").write_text(yaml.safe_dump({"groups": [group]}))
    promtool("check", "rules", tmp_path / "panels.yaml")
