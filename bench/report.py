"""The page of the benchmarks: `bench/report/README.md` and its plots, from the JSON files beside it and nothing else.

    python -m bench.report [FOLDER]

Drawing is left to `bench.plots`; measuring, to the benchmarks.
"""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from bench.harness import REPORTS, Cell, Ratio, Report, Table, load
from bench.plots import draw_figure, draw_rates, draw_ratios

PAGE = "README.md"


def write_page(folder: Path = REPORTS) -> Path:
    """Read every report of the folder, draw, write; the page is a function of the files."""
    reports = [load(path) for path in sorted(folder.glob("*.json"))]
    if not reports:
        raise SystemExit(f"there are no reports in {folder}: run a benchmark first")
    for old in folder.glob("*.png"):
        old.unlink()
    parts = [
        "# Benchmarks",
        "Made by `python -m bench.report` from the JSON files beside it. `make bench` measures anew.",
        "## Against the bars",
        _verdict(reports),
        markdown(_ratio_table(reports)),
        *_overview(reports, folder),
        *(part for report in reports for part in _section(report, folder)),
        "## Machine",
        *_machines(reports),
    ]
    page = folder / PAGE
    page.write_text("\n\n".join(parts) + "\n", "utf-8")
    return page


def _verdict(reports: Sequence[Report]) -> str:
    verdicts = [ratio.met for report in reports for ratio in report.ratios if ratio.bar is not None]
    quick = [report.name for report in reports if report.profile == "quick"]
    hint = f" Quick runs, which are rough: {', '.join(quick)}." if quick else ""
    return f"{sum(map(bool, verdicts))} of {len(verdicts)} bars met.{hint}"


def _ratio_table(reports: Iterable[Report]) -> Table:
    rows: list[list[Cell]] = [
        [report.name, *_ratio_cells(ratio)] for report in reports for ratio in report.ratios if ratio.bar is not None
    ]
    return Table("", ["benchmark", *RATIO_COLUMNS], rows)


RATIO_COLUMNS = ["what", "against", "ours", "peer", "ratio", "from … to", "bar", "met"]


def _ratio_cells(ratio: Ratio) -> list[Cell]:
    sign = "≥" if ratio.higher_is_better else "≤"
    bar = "" if ratio.bar is None else f"{sign} {ratio.bar:.3g}"
    met = {None: "", True: "yes", False: "**no**"}[ratio.met]
    values = [f"{value:.4g} {ratio.unit}" for value in (ratio.ours, ratio.peer)]
    return [ratio.what, ratio.against, *values, f"{ratio.ratio:.2f}", f"{ratio.low:.2f} … {ratio.high:.2f}", bar, met]


def _overview(reports: Sequence[Report], folder: Path) -> list[str]:
    ratios = [ratio for report in reports for ratio in report.ratios if ratio.bar is not None]
    return [_image(draw_ratios(ratios, folder), "Ratios against their bars")] if ratios else []


def _section(report: Report, folder: Path) -> list[str]:
    images = [_image(draw_figure(figure, folder), figure.title) for figure in report.figures]
    images += [_image(path, report.title) for path in draw_rates(report, folder)]
    ratios: list[list[Cell]] = [_ratio_cells(ratio) for ratio in report.ratios]
    return [
        f"## {report.title}",
        f"`python -m bench.{report.name} {report.profile}`, {report.seconds:.0f} s.",
        *report.notes,
        *([markdown(Table("", RATIO_COLUMNS, ratios))] if ratios else []),
        *(part for table in report.tables for part in (f"**{table.title}**", markdown(table))),
        *images,
    ]


def _image(path: Path, title: str) -> str:
    return f"![{title}]({path.name})"


def markdown(table: Table) -> str:
    lines = [table.columns, ["---"] * len(table.columns), *([cell(value) for value in row] for row in table.rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def cell(value: Cell) -> str:
    if value is None:
        return ""
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return text.replace("|", "\\|").replace("\n", " ")


def _machines(reports: Sequence[Report]) -> list[str]:
    """Once, where all reports were measured alike; otherwise each with its own."""
    groups: dict[str, list[str]] = {}
    for report in reports:
        groups.setdefault(_describe(report.machine), []).append(report.name)
    if len(groups) == 1:
        return list(groups)
    return [f"**{', '.join(names)}**\n\n{text}" for text, names in groups.items()]


def _describe(machine: dict[str, Any]) -> str:
    """All but the load of the moment, which differs from report to report."""
    lines = []
    for name, value in machine.items():
        if isinstance(value, dict):
            value = ", ".join(f"{key} {item}" for key, item in value.items())
        elif isinstance(value, list):
            value = ", ".join(map(str, value))
        if name != "load_before":
            lines.append(f"- {name.replace('_', ' ')}: {value}")
    return "\n".join(lines)


if __name__ == "__main__":
    print(write_page(Path(sys.argv[1]) if len(sys.argv) > 1 else REPORTS))
