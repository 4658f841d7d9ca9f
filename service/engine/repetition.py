"""When is a repeated tail a loop? Periods, thresholds, and what the source itself repeats.

A model that falls into a loop says the same few tokens until its limit. Text repeats itself too ("very, very, very",
1 000 000, "ha ha ha ha"), so a tail counts as a loop only when a cycle of at most `MAX_PERIOD` tokens has come round
at least `MIN_TURNS` times, over at least `MIN_TOKENS` tokens, and over more than twice what the source repeats. It is
looked for from `MIN_TOKENS` tokens on, every `LOOK_EVERY`, and at the end; so an ordinary sentence costs nothing.
When to look, and what to do about a loop, is left to `search`.
"""

from collections.abc import Sequence

MAX_PERIOD = 8
MIN_TURNS = 4
MIN_TOKENS = 24
LOOK_EVERY = 8

_ALWAYS_ALLOWED = tuple(max(MIN_TOKENS, MIN_TURNS * period) - period for period in range(1, MAX_PERIOD + 1))


def thresholds(source_ids: Sequence[int]) -> tuple[int, ...]:
    """For each period: how many tokens in a row must equal the one a period before them to make a loop."""
    # A source that repeats itself over more than MIN_TOKENS / 2 tokens has at least this many duplicates; few do.
    if len(source_ids) - len(set(source_ids)) <= MIN_TOKENS // 2 - MAX_PERIOD:
        return _ALWAYS_ALLOWED
    span = 2 * longest_cycle(source_ids) + 1
    return tuple(max(allowed, span - period) for period, allowed in enumerate(_ALWAYS_ALLOWED, 1))


def loop_length(ids: Sequence[int], limits: Sequence[int], start: int) -> int | None:
    """How many tokens of a loop at the end are superfluous, all but its first turn; None where there is no loop.

    Tokens before `start` were forced, and are no part of it.
    """
    for period, limit in enumerate(limits, 1):
        run = _run(ids, period, start)
        if run >= limit:
            return run
    return None


def repeated(ids: Sequence[int], start: int) -> int:
    """How many tokens at the end may turn out to be superfluous."""
    return max(_run(ids, period, start) for period in range(1, MAX_PERIOD + 1))


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


def _run(ids: Sequence[int], period: int, start: int) -> int:
    """How many tokens at the end, from `start` on, equal the one a period before them."""
    first = max(start, period)
    place = len(ids) - 1
    while place >= first and ids[place] == ids[place - period]:
        place -= 1
    return len(ids) - 1 - place
