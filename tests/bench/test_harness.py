"""The harness: ratios that mean what they say, runs that alternate, reports that survive their file."""

import os
from pathlib import Path

import pytest

from bench.harness import Figure, Profile, Ratio, Report, Table, alternate, faster, load, pinned, save, slower, timed


def test_a_ratio_is_the_median_of_pairs_not_of_sides() -> None:
    """A slow minute of the machine hits both sides of a pair; medians of sides would mix the minutes."""
    ratio = faster("greedy", "peer", ours=[1.0, 10.0, 2.0], peer=[2.0, 20.0, 8.0], amount=20, unit="/s", bar=1.9)
    assert (ratio.ratio, ratio.low, ratio.high) == (2.0, 2.0, 4.0)
    assert (ratio.ours, ratio.peer) == (10.0, 2.5)  # rates of the medians
    assert ratio.met


def test_a_cost_is_met_from_below() -> None:
    """Of a latency less is better: the bar is a ceiling."""
    ratio = slower("latency", "peer", ours=[3.0, 3.0], peer=[5.0, 5.0], unit="ms", bar=0.5)
    assert ratio.ratio == pytest.approx(0.6)
    assert ratio.met is False
    assert slower("latency", "peer", [3.0], [5.0], "ms", None).met is None


def test_runs_alternate_and_turn_around() -> None:
    """Whoever always comes second finds the caches warm, or the processor hot."""
    calls: list[str] = []
    seconds = alternate({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, runs=2)
    assert "".join(calls) == "ab" + "ab" + "ba"
    assert {name: len(values) for name, values in seconds.items()} == {"a": 2, "b": 2}


def test_a_report_survives_its_file(tmp_path: Path) -> None:
    """The page is drawn from the file, in another process."""
    report = Report(
        "offline",
        "A file",
        [Table("Rates", ["who", "rate"], [["ours", 1.5], ["ação", None]])],
        [Ratio("greedy", "peer", 2.0, 1.0, "/s", 2.0, 1.9, 2.1, 1.3, True)],
        [Figure("rates", "Rates", "rows", "rate", {"ours": [[1.0, 2.0]]}, log_x=True)],
        ["A note."],
    )
    found = load(save(report, tmp_path))
    assert found.machine["cpu"]
    assert found.machine["versions"]["onnxruntime"]
    assert found.tables == report.tables
    assert found.ratios == report.ratios
    assert found.figures == report.figures


def test_pinning_ends() -> None:
    """A benchmark that leaves its core behind would slow the next one."""
    before = os.sched_getaffinity(0)
    with pinned(0):
        assert len(os.sched_getaffinity(0)) == 1
    assert os.sched_getaffinity(0) == before


def test_a_report_says_what_it_was_asked() -> None:
    """Figures of a quick run are not to be taken for those of a full one."""
    report = timed(lambda profile: Report("x", "X"), Profile("full"))
    assert report.profile == "full"
    assert report.machine
