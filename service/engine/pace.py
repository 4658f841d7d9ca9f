"""What the engine learns about its own speed: how long a step takes, and how fast the queue drains.

Pure: measurements are arguments. `scheduler` decides by them.
"""

_FORGET_STEPS = 0.99  # the weight of each older step: the last few hundred count
_FORGET_SECONDS = 30.0


class StepTimes:
    """The time of a step as a linear function of its rows, fitted to the measurements; newer ones weigh more."""

    def __init__(self) -> None:
        self._weight = self._rows = self._rows_squared = self._seconds = self._rows_seconds = 0.0

    def note(self, rows: int, seconds: float) -> None:
        self._weight = self._weight * _FORGET_STEPS + 1.0
        self._rows = self._rows * _FORGET_STEPS + rows
        self._rows_squared = self._rows_squared * _FORGET_STEPS + rows * rows
        self._seconds = self._seconds * _FORGET_STEPS + seconds
        self._rows_seconds = self._rows_seconds * _FORGET_STEPS + rows * seconds

    def rows_within(self, seconds: float) -> int | None:
        """How many rows a step of that time can have; None before the first measurement."""
        if self._weight == 0.0 or self._seconds <= 0.0:
            return None
        rows, mean = self._rows / self._weight, self._seconds / self._weight
        variance = self._rows_squared / self._weight - rows * rows
        per_row = mean / rows  # without a fixed part, until there are steps of several sizes
        if variance > 0.25:
            slope = (self._rows_seconds / self._weight - rows * mean) / variance
            per_row = min(per_row, max(slope, per_row / 100))
        fixed = mean - per_row * rows
        return max(0, int((seconds - fixed) / per_row))


class DrainRate:
    """Source tokens per second of work, forgetting exponentially; idle time does not count."""

    def __init__(self) -> None:
        self._tokens = self._seconds = 0.0

    def note(self, tokens: int, seconds: float) -> None:
        forget = max(0.0, 1.0 - seconds / _FORGET_SECONDS)
        self._tokens = self._tokens * forget + tokens
        self._seconds = self._seconds * forget + seconds

    @property
    def tokens_per_second(self) -> float | None:
        """None until something has been drained."""
        return self._tokens / self._seconds if self._tokens > 0.0 and self._seconds > 0.0 else None
