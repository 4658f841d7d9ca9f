"""What a comparison of two revisions concludes from its pairs."""

import random

import pytest

from bench import compare
from bench.compare import WORKLOADS, Plan, bootstrap


def test_equal_trees_come_out_at_one() -> None:
    """Noise around 1 must not be told as a gain."""
    draw = random.Random(1)
    middle, low, high = bootstrap([draw.gauss(1.0, 0.02) for _ in range(12)])
    assert low < 1 < high
    assert low < middle < high


def test_a_gain_beyond_the_noise_is_told() -> None:
    draw = random.Random(2)
    _, low, high = bootstrap([draw.gauss(1.2, 0.02) for _ in range(12)])
    assert 1.1 < low < high < 1.3


def test_more_runs_narrow_the_interval() -> None:
    """Otherwise there would be no reason to wait for them."""
    draw = random.Random(3)
    ratios = [draw.gauss(1.0, 0.05) for _ in range(64)]
    widths = [high - low for _, low, high in (bootstrap(ratios[:8]), bootstrap(ratios))]
    assert widths[1] < widths[0]


def test_which_side_is_called_base_does_not_matter() -> None:
    """A half and a double are the same distance from 1."""
    middle, low, high = bootstrap([0.5, 2.0, 0.8, 1.25])
    assert abs(middle - 1) < 1e-9
    turned = bootstrap([2.0, 0.5, 1.25, 0.8])
    assert abs(turned[0] - 1) < 1e-9
    assert low < 1 < high


@pytest.mark.parametrize(
    ("words", "workloads", "runs", "export"),
    [
        (["HEAD~1"], WORKLOADS, 8, False),
        (["HEAD~1", "--workloads", "greedy", "single", "--runs", "2"], ["greedy", "single"], 2, False),
        (["--runs", "3", "HEAD~1", "--export", "--workloads", "beam"], ["beam"], 3, True),
    ],
)
def test_the_command_line_is_what_is_compared(
    words: list[str], workloads: list[str], runs: int, export: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scripts call it with these words."""
    plans: list[Plan] = []
    monkeypatch.setattr(compare, "run", lambda plan: plans.append(plan) or [])
    with pytest.raises(SystemExit) as ended:
        compare.main(words)
    assert ended.value.code == 0
    plan = plans[0]
    assert (plan.base, list(plan.workloads), plan.runs, plan.export) == ("HEAD~1", list(workloads), runs, export)
    assert plan.bundle.is_absolute()


def test_an_unknown_workload_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """An hour later would be too late."""
    with pytest.raises(SystemExit) as ended:
        compare.main(["HEAD", "--workloads", "greedy", "breadth"])
    assert ended.value.code == 2
    assert "'breadth' is not one of greedy, beam," in capsys.readouterr().err
