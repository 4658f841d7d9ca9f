"""`python -m deploy.grafana.render`: write dashboard.json from panels.py."""

import json
from pathlib import Path
from typing import Any

from deploy.grafana.panels import ROWS, Panel

TARGET = Path(__file__).parent / "dashboard.json"
SELECTOR = 'job="dragoman", namespace=~"$namespace", instance=~"$instance"'
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
COLUMNS, WIDTH, HEIGHT = 24, 8, 8


def expression(query: str) -> str:
    return query.replace("@", SELECTOR)


def _panel(panel: Panel, number: int, x: int, y: int) -> dict[str, Any]:
    thresholds = [{"color": "green", "value": None}]
    if panel.threshold is not None:
        thresholds.append({"color": "red", "value": panel.threshold})
    custom = {
        "drawStyle": "line",
        "lineWidth": 1,
        "fillOpacity": 40 if panel.stacked else 8,
        "showPoints": "never",
        "stacking": {"mode": "normal" if panel.stacked else "none", "group": "A"},
        "thresholdsStyle": {"mode": "off" if panel.threshold is None else "dashed"},
    }
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": DATASOURCE,
        "gridPos": {"h": HEIGHT, "w": WIDTH, "x": x, "y": y},
        "fieldConfig": {
            "defaults": {
                "unit": panel.unit,
                "min": 0,
                "color": {"mode": "palette-classic"},
                "thresholds": {"mode": "absolute", "steps": thresholds},
                "custom": custom,
            },
            "overrides": [],
        },
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "targets": [
            {
                "refId": chr(ord("A") + place),
                "datasource": DATASOURCE,
                "expr": expression(query),
                "legendFormat": legend,
            }
            for place, (query, legend) in enumerate(panel.queries)
        ],
    }


def _row(title: str, number: int, y: int) -> dict[str, Any]:
    place = {"h": 1, "w": COLUMNS, "x": 0, "y": y}
    return {"id": number, "type": "row", "title": title, "collapsed": False, "gridPos": place, "panels": []}


def _panels() -> list[dict[str, Any]]:
    panels: list[dict[str, Any]] = []
    y = 0
    for row in ROWS:
        panels.append(_row(row.title, len(panels) + 1, y))
        y += 1
        for place, panel in enumerate(row.panels):
            line, column = divmod(place, COLUMNS // WIDTH)
            panels.append(_panel(panel, len(panels) + 1, column * WIDTH, y + line * HEIGHT))
        y += -(-len(row.panels) // (COLUMNS // WIDTH)) * HEIGHT
    return panels


def _variable(name: str, label: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": DATASOURCE,
        "query": {"query": query, "refId": name},
        "definition": query,
        "refresh": 2,
        "includeAll": True,
        "allValue": ".*",  # also where the label is absent
        "multi": True,
        "sort": 1,
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
        "options": [],
    }


def dashboard() -> dict[str, Any]:
    datasource = {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}
    return {
        "uid": "dragoman",
        "title": "Dragoman",
        "description": "Are users fine, where does the time go, is the batch full, should we scale?",
        "tags": ["dragoman"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "timezone": "browser",
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [
                {**datasource, "current": {}, "options": [], "refresh": 1},
                _variable("namespace", "Namespace", 'label_values(up{job="dragoman"}, namespace)'),
                _variable("instance", "Replica", 'label_values(up{job="dragoman"}, instance)'),
                _variable(
                    "pair", "Pair", 'label_values(dragoman_request_duration_seconds_count{job="dragoman"}, pair)'
                ),
            ]
        },
        "annotations": {"list": []},
        "links": [],
        "panels": _panels(),
    }


def render() -> str:
    return json.dumps(dashboard(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    TARGET.write_text(render(), "utf-8")
