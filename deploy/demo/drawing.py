"""Draws the dashboard with matplotlib, from what Prometheus answered: what Grafana would show, where there is none."""

import json
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from deploy.demo.queries import DASHBOARD, Query, Series

COLUMNS = 3
MAX_LEGEND = 9
UNITS = {
    "s": lambda value, _: f"{value * 1000:g} ms" if abs(value) < 1 else f"{value:g} s",
    "percentunit": lambda value, _: f"{value * 100:g} %",
    "bytes": lambda value, _: f"{value / 2**20:.0f} MiB",
    "reqps": lambda value, _: f"{value:g}/s",
    "ops": lambda value, _: f"{value:g}/s",
}


def draw(found: dict[Query, Series], start: float, out: Path, caption: str) -> None:
    panels = json.loads(DASHBOARD.read_text("utf-8"))["panels"]
    lines = _lines(panels)
    figure = plt.figure(figsize=(18, 2.9 * len(lines)), layout="constrained", facecolor="white")
    figure.suptitle(caption, fontsize=11)
    grid = figure.add_gridspec(len(lines), COLUMNS)
    for number, (title, line) in enumerate(lines):
        for column, panel in enumerate(line):
            axes = figure.add_subplot(grid[number, column])
            _draw_panel(axes, panel, found, start)
            if column == 0 and title:
                axes.annotate(title, (0, 1.18), xycoords="axes fraction", fontsize=15, fontweight="bold")
    figure.savefig(out, dpi=70)
    plt.close(figure)


def _lines(panels: list[dict[str, Any]]) -> list[tuple[str, list[dict[str, Any]]]]:
    """Panels in lines of three; the first line of a row carries the row's title."""
    lines: list[tuple[str, list[dict[str, Any]]]] = []
    title = ""
    for panel in panels:
        if panel["type"] == "row":
            title = panel["title"]
        elif title or len(lines[-1][1]) == COLUMNS:
            lines.append((title, [panel]))
            title = ""
        else:
            lines[-1][1].append(panel)
    return lines


def _draw_panel(axes: Axes, panel: dict[str, Any], found: dict[Query, Series], start: float) -> None:
    series = {
        name: values
        for query, each in found.items()
        if query.where == f"panel {panel['title']}"
        for name, values in each.items()
    }
    for name, values in sorted(series.items(), key=lambda item: -max(value for _, value in item[1])):
        axes.plot([at - start for at, _ in values], [value for _, value in values], label=name, linewidth=1.2)
    defaults = panel["fieldConfig"]["defaults"]
    limits = [step["value"] for step in defaults["thresholds"]["steps"] if step["value"] is not None]
    top = axes.get_ylim()[1]
    for limit in limits:
        if limit < 3 * top:  # one that is far away would flatten the curves
            axes.axhline(limit, color="red", linestyle="--", linewidth=0.8)
    axes.set_ylim(0, 1.1 * axes.get_ylim()[1])
    axes.set_title(panel["title"], fontsize=10, loc="left")
    axes.tick_params(labelsize=8)
    axes.grid(alpha=0.25)
    if defaults["unit"] in UNITS:
        axes.yaxis.set_major_formatter(FuncFormatter(UNITS[defaults["unit"]]))
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(handles[:MAX_LEGEND], labels[:MAX_LEGEND], fontsize=7, loc="upper left", framealpha=0.6)
