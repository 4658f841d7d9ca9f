"""Whether a decode loop still moves: when it last finished a turn, and for how long it has had work since then.

A loop only stores a time at the end of each turn; everything else is worked out by whoever asks.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Heartbeat:
    last_turn_at: float | None  # by the engine's clock; None before the first turn
    has_work: bool  # jobs in its batch, or in the queue
    stalled_seconds: float  # how long it has had work without finishing a turn; 0 without work


def heartbeat(now: float, last_turn_at: float | None, oldest_work_at: float | None) -> Heartbeat:
    """`oldest_work_at` is when the oldest job came that the loop runs or could take; None when there is none."""
    if oldest_work_at is None:
        return Heartbeat(last_turn_at, has_work=False, stalled_seconds=0.0)
    # A loop that was idle has not stalled before its work came.
    since = oldest_work_at if last_turn_at is None else max(last_turn_at, oldest_work_at)
    return Heartbeat(last_turn_at, has_work=True, stalled_seconds=max(0.0, now - since))
