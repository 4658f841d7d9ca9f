"""A clock for tests."""


class Clock:
    """Stands still until told, or moves a little whenever it is looked at."""

    def __init__(self, now: float = 100.0, tick: float = 0.0) -> None:
        self.now, self.tick = now, tick

    def __call__(self) -> float:
        self.now += self.tick
        return self.now
