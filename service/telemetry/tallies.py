"""Counts and histograms that are cheap to add to: a request adds to a dozen of them, every decoder step to two.

Their names, labels and exposition are in `metrics.py`. Each has one lock, which is taken once per call. The counters
of `prometheus_client` take several locks and compare a value with every bound: for a sentence this cost more than all
other work around the network.
"""

import time
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from threading import Lock


class Count:
    """A sum; any thread may add to it."""

    __slots__ = ("_lock", "created_at", "value")

    def __init__(self) -> None:
        self._lock = Lock()
        self.value = 0.0
        self.created_at = time.time()

    def add(self, amount: float = 1.0) -> None:
        with self._lock:
            self.value += amount


class Histogram:
    """Counts values by the lowest bound that they do not exceed; any thread may add to it."""

    __slots__ = ("_bounds", "_counts", "_lock", "_sum", "created_at")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._lock = Lock()
        self._bounds = list(bounds)  # ascending
        self._counts = [0] * (len(bounds) + 1)  # the last one: values above all bounds
        self._sum = 0.0
        self.created_at = time.time()

    def observe(self, value: float, times: int = 1) -> None:
        place = bisect_left(self._bounds, value)
        with self._lock:
            self._counts[place] += times
            self._sum += value * times

    def observe_all(self, values: Sequence[float]) -> None:
        with self._lock:
            for value in values:
                self._counts[bisect_left(self._bounds, value)] += 1
                self._sum += value

    def read(self) -> tuple[list[int], float]:
        """How many values lie at or below each bound, the last number being all of them; and their sum."""
        with self._lock:
            return list(accumulate(self._counts)), self._sum
