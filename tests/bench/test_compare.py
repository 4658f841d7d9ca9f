"""What a comparison of two revisions concludes from its pairs."""

import random

from bench.compare import bootstrap


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
