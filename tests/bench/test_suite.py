"""The suite runs what is there: every benchmark by its name, in a process of its own."""

import importlib.util
from pathlib import Path

import pytest

from bench import __main__ as suite
from bench.harness import Ratio, Report, save


@pytest.mark.parametrize("name", suite.SUITE)
def test_every_benchmark_of_the_suite_is_a_module_with_a_command(name: str) -> None:
    """A renamed benchmark would otherwise be missed in the middle of an hour."""
    found = importlib.util.find_spec(f"bench.{name}")
    assert found is not None
    assert found.origin is not None
    assert "command(run, __doc__)" in Path(found.origin).read_text("utf-8")


def test_a_benchmark_that_fails_does_not_stop_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An hour of measuring must not be lost to the last part of it."""
    ran: list[tuple[str, list[str]]] = []

    def run(name: str, arguments: list[str]) -> suite.Outcome:
        ran.append((name, arguments))
        if name == "beside":
            return suite.Outcome(name, False, 1.0)
        ratio = Ratio("rate", "peer", 2.0, 1.0, "requests/s", 2.0, 1.9, 2.1, 1.5, True)
        save(Report(name, name, ratios=[ratio], machine={"cpu": "a machine"}), tmp_path)
        return suite.Outcome(name, True, 1.0)

    monkeypatch.setattr(suite, "_run", run)
    with pytest.raises(SystemExit) as ended:
        suite.main(["full", "--only", "beside", "served", "--runs", "2", "--out", str(tmp_path)])
    assert ended.value.code == 1
    assert [name for name, _ in ran] == ["beside", "served"]
    assert ran[0][1] == ["full", "--runs", "2", "--out", str(tmp_path)]
    assert "1 of 1 bars met" in (tmp_path / "README.md").read_text("utf-8")
