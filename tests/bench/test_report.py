"""The page of the benchmarks: made from the JSON files alone, and honest about what was missed."""

from pathlib import Path

import pytest

from bench.harness import Figure, Ratio, Report, Table, save
from bench.report import write_page

MACHINE = {"cpu": "a machine", "versions": {"numpy": "2"}, "flags": ["avx2"], "load_before": 0.1}


def sample(name: str, ratio: float, machine: dict[str, object] = MACHINE) -> Report:
    curve = Figure(
        f"{name}-curve", "latency", "rate", "ms", {"ours": [[1.0, 2.0], [2.0, 3.0]], "peer": []}, lines={"limit": 5}
    )
    return Report(
        name,
        f"The {name} benchmark",
        tables=[Table("rows", ["what", "value"], [["a | b", 1.23456], ["none", None]])],
        ratios=[
            Ratio("rate", "peer", 20.0, 10.0, "requests/s", ratio, 0.9 * ratio, 1.1 * ratio, 2.0, True),
            Ratio("latency", "peer", 1.0, 3.0, "ms", 0.33, 0.3, 0.4, None, False),
        ],
        figures=[curve],
        notes=["A note."],
        machine=machine,
    )  # fmt: skip


def test_a_page_shows_ratios_tables_and_plots(tmp_path: Path) -> None:
    """Everything that a report says is on the page, and every picture that it names is there."""
    save(sample("one", 2.5), tmp_path)
    save(sample("two", 1.5), tmp_path)
    page = write_page(tmp_path).read_text("utf-8")
    assert "1 of 2 bars met" in page
    assert "**no**" in page
    assert "| a \\| b | 1.235 |" in page
    assert page.count("A note.") == 2
    assert page.count("cpu: a machine") == 1
    pictures = [part.partition(")")[0] for part in page.split("](")[1:]]
    assert set(pictures) == {path.name for path in tmp_path.glob("*.png")}
    assert {"ratios.png", "one-curve.png", "two-rates.png"} <= set(pictures)


def test_different_machines_are_told_apart(tmp_path: Path) -> None:
    """Figures of two machines on one page must not look like one run."""
    save(sample("one", 2.5), tmp_path)
    save(sample("two", 2.5, MACHINE | {"cpu": "another machine"}), tmp_path)
    page = write_page(tmp_path).read_text("utf-8")
    assert "cpu: a machine" in page
    assert "cpu: another machine" in page


def test_the_page_is_a_function_of_the_files(tmp_path: Path) -> None:
    """A stale picture or a date would make every run look like news."""
    save(sample("one", 2.5), tmp_path)
    (tmp_path / "stale.png").write_bytes(b"")
    first = {path.name: path.read_bytes() for path in (write_page(tmp_path), *tmp_path.glob("*.png"))}
    second = {path.name: path.read_bytes() for path in (write_page(tmp_path), *tmp_path.glob("*.png"))}
    assert first == second
    assert "stale.png" not in first


def test_nothing_measured_is_said(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="run a benchmark first"):
        write_page(tmp_path)
