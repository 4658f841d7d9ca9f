"""Decides when repeated tokens at the end of a translation are a loop.

A model that falls into a loop repeats the same few tokens until its limit. Normal text repeats itself too ("very, very,
very", 1 000 000, "ha ha ha ha"). So the tokens at the end count as a loop only when a cycle of at most `MAX_PERIOD`
tokens is repeated at least `MIN_TURNS` times, over at least `MIN_TOKENS` tokens, and over more than twice the longest
repetition in the source. `search` checks at `MIN_TOKENS` tokens, then every `LOOK_EVERY`, and at the end, so that an
ordinary sentence costs nothing; it also decides what to do about a loop.
"""

from collections.abc import Sequence

MAX_PERIOD = 8
MIN_TURNS = 4
MIN_TOKENS = 24
LOOK_EVERY = 8

_ALWAYS_ALLOWED = tuple(max(MIN_TOKENS, MIN_TURNS * period) - period for period in range(1, MAX_PERIOD + 1))


def thresholds(source_ids: Sequence[int]) -> tuple[int, ...]:
    """For each period, how many tokens in a row must equal the token one period before them to make a loop."""
    # A source that repeats itself over more than MIN_TOKENS / 2 tokens has at least this many duplicates; few do.
    if len(source_ids) - len(set(source_ids)) <= MIN_TOKENS // 2 - MAX_PERIOD:
        return _ALWAYS_ALLOWED
    span = 2 * longest_cycle(source_ids) + 1
    return tuple(max(allowed, span - period) for period, allowed in enumerate(_ALWAYS_ALLOWED, 1))


def loop_length(ids: Sequence[int], limits: Sequence[int], start: int) -> int | None:
    """How many tokens at the end only repeat the first turn of a loop; None if there is no loop.

    Tokens before `start` were forced, and are not part of it.
    """
    for period, limit in enumerate(limits, 1):
        run = _run(ids, period, start)
        if run >= limit:
            return run
    return None


def repeated(ids: Sequence[int], start: int) -> int:
    """How many tokens at the end may turn out to be part of a loop."""
    return max(_run(ids, period, start) for period in range(1, MAX_PERIOD + 1))


def longest_cycle(ids: Sequence[int]) -> int:
    """The length of the longest part that is one cycle repeated at least once; 0 if there is none."""
    longest = 0
    for period in range(1, MAX_PERIOD + 1):
        run = 0
        for earlier, later in zip(ids, ids[period:], strict=False):
            run = run + 1 if earlier == later else 0
            if run >= period:
                longest = max(longest, run + period)
    return longest


def _run(ids: Sequence[int], period: int, start: int) -> int:
    """How many tokens at the end, from `start` on, equal the token one period before them."""
    first = max(start, period)
    place = len(ids) - 1
    while place >= first and ids[place] == ids[place - period]:
        place -= 1
    return len(ids) - 1 - place
