"""The dashboard: what Grafana would refuse or draw wrong, seen without Grafana."""

import json
import re
from itertools import combinations
from typing import Any

import pytest

from deploy.grafana import render
from deploy.grafana.panels import ROWS

DASHBOARD: dict[str, Any] = json.loads(render.TARGET.read_text("utf-8"))
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
UNITS = {"s", "reqps", "ops", "percentunit", "bytes", "short"}


def test_the_file_is_what_the_panels_say() -> None:
    """Written by `python -m deploy.grafana.render`; edits in Grafana go back to panels.py."""
    assert render.TARGET.read_text("utf-8") == render.render()


def test_it_answers_four_questions() -> None:
    """Users, time, batch, capacity: in this order, as an incident is read."""
    titles = [panel["title"] for panel in DASHBOARD["panels"] if panel["type"] == "row"]
    assert titles == [row.title for row in ROWS]
    assert len(titles) == 4
    assert all(title.endswith("?") for title in titles)


def test_identifiers_are_unique() -> None:
    """Grafana drops one of two panels with the same id."""
    numbers = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(numbers)) == len(numbers)
    titles = [panel["title"] for panel in PANELS]
    assert len(set(titles)) == len(titles)


def test_panels_do_not_overlap() -> None:
    """Grafana would push them apart, each time differently."""
    places = [panel["gridPos"] for panel in DASHBOARD["panels"]]
    for place in places:
        assert place["x"] >= 0
        assert place["x"] + place["w"] <= 24
    for one, other in combinations(places, 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        above = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or above, (one, other)


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_a_panel_explains_itself(panel: dict[str, Any]) -> None:
    """Who looks at it at night did not write it: description, unit, legends."""
    assert len(panel["description"]) > 40
    assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
    assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    references = [target["refId"] for target in panel["targets"]]
    assert references
    assert len(set(references)) == len(references)
    assert all(target["legendFormat"] for target in panel["targets"])


def test_every_variable_is_declared_and_used() -> None:
    """An unknown variable is sent to Prometheus as it is written."""
    declared = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
    text = json.dumps([panel["targets"] for panel in PANELS])
    used = set(re.findall(r"\$\{?(\w+)", text)) - {"__rate_interval"}
    assert used == declared


def test_legends_use_labels_that_the_query_keeps() -> None:
    """A label that was summed away is an empty legend."""
    for panel in PANELS:
        for target in panel["targets"]:
            kept = re.findall(r"^(?:histogram_quantile\([\d.]+, )?(?:sum|count|max) by \(([^)]*)\)", target["expr"])
            for label in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]):
                assert not kept or label in re.split(r",\s*", kept[0]), target


def test_rates_follow_the_zoom() -> None:
    """A fixed window is empty when it is shorter than two scrapes, and blunt when one zooms in."""
    for panel in PANELS:
        for target in panel["targets"]:
            assert all(found in ("$__rate_interval", "1h") for found in re.findall(r"\[([^\]]+)\]", target["expr"]))
