"""When is a repeated tail a loop? Periods, thresholds, and what the source itself repeats.

A model that falls into a loop says the same few tokens until its limit. Text repeats itself too ("very, very, very",
1 000 000, "ha ha ha ha"), so a tail counts as a loop only when a cycle of at most `MAX_PERIOD` tokens has come round
at least `MIN_TURNS` times, over at least `MIN_TOKENS` tokens, and over more than twice what the source repeats.
Counting is left to `rows`, which keeps for every row how long its tail has repeated at each period.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

MAX_PERIOD = 8
MIN_TURNS = 4
MIN_TOKENS = 24

PERIODS = np.arange(1, MAX_PERIOD + 1)
NEVER = np.full(MAX_PERIOD, np.iinfo(np.int64).max)
_ALWAYS_ALLOWED = np.maximum(MIN_TOKENS, MIN_TURNS * PERIODS) - PERIODS


def thresholds(source_ids: Sequence[int]) -> npt.NDArray[np.int64]:
    """For each period: how many tokens in a row must equal the one a period before them to make a loop."""
    # A source that repeats itself over more than MIN_TOKENS / 2 tokens has at least this many duplicates; few do.
    if len(source_ids) - len(set(source_ids)) <= MIN_TOKENS // 2 - MAX_PERIOD:
        return _ALWAYS_ALLOWED
    return np.maximum(_ALWAYS_ALLOWED, 2 * longest_cycle(source_ids) + 1 - PERIODS)


def longest_cycle(ids: Sequence[int]) -> int:
    """The length of the longest stretch that is one cycle come round at least twice; 0 if there is none."""
    longest = 0
    for period in range(1, MAX_PERIOD + 1):
        run = 0
        for earlier, later in zip(ids, ids[period:], strict=False):
            run = run + 1 if earlier == later else 0
            if run >= period:
                longest = max(longest, run + period)
    return longest
