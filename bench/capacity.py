"""The highest rate that a server sustains: grow until it fails, then bisect. Knows rates and verdicts only."""

import math
from collections.abc import Callable


def highest_rate(
    sustains: Callable[[float], bool],
    start: float,
    growth: float = 2.0,
    precision: float = 1.1,
    max_probes: int = 12,
) -> float:
    """The highest rate found to be sustained, within a factor `precision` of one that was not; 0 when none was.

    From `start` it grows by `growth` while rates are sustained, or shrinks by it while they are not; then it takes the
    geometric middle of the two. It stops after `max_probes` in any case, with what it has.
    """
    good, bad, rate = 0.0, math.inf, start
    for _ in range(max_probes):
        if sustains(rate):
            good = rate
        else:
            bad = rate
        if good and bad / good <= precision:
            break
        rate = _next(good, bad, growth)
    return good


def _next(good: float, bad: float, growth: float) -> float:
    if bad == math.inf:
        return good * growth
    return math.sqrt(good * bad) if good else bad / growth
