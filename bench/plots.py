"""Plots of reports, as PNG files: curves, rates as bars, ratios against their bars. Knows no Markdown."""

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import LogFormatter, LogLocator

from bench.harness import Figure, Ratio, Report

OURS_COLOUR = "#c2410c"
PEER_COLOURS = ("#1d4ed8", "#047857", "#7c3aed", "#64748b", "#b45309", "#0e7490", "#be185d")
MET, MISSED = "#047857", "#b91c1c"


def draw_figure(figure: Figure, folder: Path) -> Path:
    drawing, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
    for (label, points), colour in zip(figure.series.items(), _colours(figure.series), strict=False):
        if points:
            across, up = zip(*points, strict=True)
            axes.plot(across, up, "o-", label=label, color=colour, markersize=4)
    for number, (label, value) in enumerate(figure.lines.items()):
        axes.axhline(value, linestyle=("--", ":", "-.")[number % 3], color="#64748b", linewidth=1, label=label)
    if figure.log_x:
        axes.set_xscale("log", base=2)
    if figure.log_y:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(LogFormatter())  # plain numbers
        axes.yaxis.set_minor_formatter(LogFormatter(minor_thresholds=(2, 0.5)))
    else:
        axes.set_ylim(bottom=0)
    axes.set(title=figure.title, xlabel=figure.x_label, ylabel=figure.y_label)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    return _write(drawing, folder / f"{figure.name}.png")


def _colours(labels: Collection[str]) -> Iterator[str]:
    """Ours always in the same one."""
    peers = iter(PEER_COLOURS * (1 + len(labels) // len(PEER_COLOURS)))
    for label in labels:
        yield OURS_COLOUR if label == "ours" or label.endswith(": ours") else next(peers)


def draw_rates(report: Report, folder: Path) -> Iterator[Path]:
    """Bars of what is better when it is higher, one plot for every unit; ours beside each peer."""
    rates = [ratio for ratio in report.ratios if ratio.higher_is_better and ratio.against != "the whole"]
    for number, unit in enumerate(dict.fromkeys(ratio.unit for ratio in rates)):
        groups = _groups([ratio for ratio in rates if ratio.unit == unit])
        drawing, axes = plt.subplots(figsize=(7, 0.8 + 0.34 * sum(map(len, groups.values()))), layout="constrained")
        _bars(axes, groups)
        axes.set(xlabel=unit)
        drawing.suptitle(report.title, fontsize="medium")
        yield _write(drawing, folder / f"{report.name}-rates{'' if number == 0 else number + 1}.png")


def _groups(rates: Sequence[Ratio]) -> dict[str, dict[str, float]]:
    """What was measured -> who -> how fast."""
    groups: dict[str, dict[str, float]] = {}
    for ratio in rates:
        groups.setdefault(ratio.what, {"ours": ratio.ours})[ratio.against] = ratio.peer
    return groups


def _bars(axes: Axes, groups: dict[str, dict[str, float]]) -> None:
    place, places, names = 0.0, [], []
    for what, group in groups.items():
        for (name, rate), colour in zip(group.items(), _colours(list(group)), strict=False):
            axes.barh(place, rate, color=colour, height=0.8)
            axes.annotate(f" {rate:.4g}", (rate, place), va="center", fontsize="small")
            places.append(place)
            names.append(f"{what}: ours" if name == "ours" else name)
            place += 1
        place += 0.5
    axes.set_yticks(places, names, fontsize="small")
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.spines[["top", "right"]].set_visible(False)


def draw_ratios(ratios: Sequence[Ratio], folder: Path) -> Path:
    """Every ratio as a multiple of its bar, turned so that right of the line is better."""
    drawing, axes = plt.subplots(figsize=(10, 1.2 + 0.36 * len(ratios)), layout="constrained")
    for place, ratio in enumerate(ratios):
        middle, low, high = (_beyond_bar(ratio, value) for value in (ratio.ratio, ratio.low, ratio.high))
        colour = MET if ratio.met else MISSED
        axes.plot(sorted((low, high)), [place, place], color=colour, linewidth=2)
        axes.plot(middle, place, "o", color=colour)
    axes.axvline(1, color="black", linewidth=1)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(LogLocator(base=2, numticks=8))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.3g}")
    axes.set_yticks(range(len(ratios)), [f"{ratio.what}, {ratio.against}" for ratio in ratios], fontsize="small")
    axes.invert_yaxis()
    drawing.suptitle("Ratios as multiples of their bars (right of the line: met)")
    axes.grid(alpha=0.3, axis="x")
    return _write(drawing, folder / "ratios.png")


def _beyond_bar(ratio: Ratio, value: float) -> float:
    assert ratio.bar is not None
    least = 1e-3  # a ratio of nothing has no place on a logarithmic axis
    return max(value, least) / ratio.bar if ratio.higher_is_better else ratio.bar / max(value, least)


def _write(drawing: Drawing, path: Path) -> Path:
    # Without the library's version, so that equal reports make equal files.
    drawing.savefig(path, dpi=120, metadata={"Software": None})
    plt.close(drawing)
    return path
