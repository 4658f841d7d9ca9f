"""What the engine learns about its own speed."""

import pytest

from dragoman.service.engine.pace import DrainRate, StepTimes


def test_step_times_learn_the_fixed_part_and_the_part_of_each_row() -> None:
    """The cap on bulk rows comes from a line, not from an average."""
    times = StepTimes()
    for rows in (1, 4, 16, 64) * 20:
        times.note(rows, 0.002 + 0.0001 * rows)
    assert times.rows_within(0.005) == pytest.approx(30, abs=1)


def test_step_times_of_one_size_are_shared_out_among_the_rows() -> None:
    """Until steps of several sizes tell, a row is taken to cost its share."""
    times = StepTimes()
    for _ in range(20):
        times.note(10, 0.010)
    assert times.rows_within(0.005) == pytest.approx(5, abs=1)


def test_step_times_follow_a_machine_that_slows_down() -> None:
    """The newest steps count most."""
    times = StepTimes()
    for seconds in (0.0001, 0.001):
        for _ in range(100):
            for rows in (1, 8, 32):
                times.note(rows, seconds * rows)
    assert times.rows_within(0.016) == pytest.approx(16, abs=3)


def test_step_times_know_nothing_at_first() -> None:
    """Nothing is capped on a guess."""
    assert StepTimes().rows_within(0.01) is None


def test_step_times_bear_a_clock_that_stands_still() -> None:
    """Coarse clocks measure zero."""
    times = StepTimes()
    times.note(4, 0.0)
    assert times.rows_within(0.01) is None


def test_drain_rate_is_tokens_per_second_of_work() -> None:
    """Idle time does not make a server look slow."""
    rate = DrainRate()
    assert rate.tokens_per_second is None
    for _ in range(1000):
        rate.note(5, 0.01)
    assert rate.tokens_per_second == pytest.approx(500)


def test_drain_rate_forgets() -> None:
    """An hour ago does not matter."""
    rate = DrainRate()
    for tokens in (100, 10):
        for _ in range(3000):
            rate.note(tokens, 0.1)
    assert rate.tokens_per_second == pytest.approx(100, rel=0.1)
