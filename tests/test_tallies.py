"""What is counted is counted once, wherever it falls and whoever counts."""

import threading
from bisect import bisect_left

from hypothesis import given
from hypothesis import strategies as st

from dragoman.service.telemetry.tallies import Count, Histogram

BOUNDS = (1.0, 2.0, 5.0)


@given(st.lists(st.sampled_from([0.5, 1.0, 1.5, 2.0, 5.0, 6.0])))
def test_every_value_lies_at_or_below_its_bounds(values: list[float]) -> None:
    """A value that equals a bound belongs to it: Prometheus says `le`, less or equal."""
    one_by_one, at_once = Histogram(BOUNDS), Histogram(BOUNDS)
    for value in values:
        one_by_one.observe(value)
    at_once.observe_all(values)
    below = [sum(value <= bound for value in values) for bound in BOUNDS]
    assert one_by_one.read() == at_once.read() == ([*below, len(values)], sum(values))


def test_a_value_seen_several_times_counts_as_often() -> None:
    """The rows of a stride's steps are told once, with how many steps there were."""
    histogram = Histogram(BOUNDS)
    histogram.observe(1.5, 3)
    counts, total = histogram.read()
    assert (counts[bisect_left(BOUNDS, 1.5)], counts[-1], total) == (3, 3, 4.5)


def test_threads_that_count_at_once_lose_nothing() -> None:
    """Decode loops of one pair and the event loop add to the same numbers."""
    count, histogram = Count(), Histogram(BOUNDS)

    def work() -> None:
        for _ in range(2000):
            count.add()
            histogram.observe(1.0)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (count.value, histogram.read()) == (8000.0, ([8000, 8000, 8000, 8000], 8000.0))
