"""The search for the highest rate, against servers that are functions."""

import math

import pytest

from bench.capacity import highest_rate


@pytest.mark.parametrize("limit", [3.0, 100.0, 777.0, 20_000.0])
@pytest.mark.parametrize("start", [1.0, 100.0, 5000.0])
def test_it_finds_the_limit_from_anywhere(limit: float, start: float) -> None:
    """The start is a guess; it must not decide the figure."""
    found = highest_rate(lambda rate: rate <= limit, start, precision=1.1, max_probes=40)
    assert found <= limit < found * 1.1


def test_it_never_says_more_than_it_saw() -> None:
    """The figure is a rate that was sustained, not one between two."""
    asked: list[tuple[float, bool]] = []

    def sustains(rate: float) -> bool:
        asked.append((rate, rate <= 130))
        return asked[-1][1]

    found = highest_rate(sustains, 100, precision=1.01)
    assert (found, True) in asked


def test_it_stops_after_its_probes() -> None:
    """A server without a limit, or one that never answers, must not be asked for ever."""
    asked: list[float] = []
    assert highest_rate(lambda rate: asked.append(rate) is None, 1.0, max_probes=5) == 16.0
    assert len(asked) == 5
    assert highest_rate(lambda rate: False, 64.0, max_probes=5) == 0.0


def test_a_close_start_needs_few_probes() -> None:
    """Later rounds begin where the first one ended, with small steps."""
    asked: list[float] = []

    def sustains(rate: float) -> bool:
        asked.append(rate)
        return rate <= 105

    found = highest_rate(sustains, 100, growth=1.25, precision=1.15)
    assert len(asked) == 3
    assert math.isclose(found, 100)
