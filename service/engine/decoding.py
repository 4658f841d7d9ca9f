"""A job in the batch, and what it has to show so far.

What happens to it is decided by `search`; where its rows are, by `seats`.
"""

from __future__ import annotations

from typing import NamedTuple

from dragoman.service.engine import repetition
from dragoman.service.engine.job import DecodingRules, FinishReason, Hypothesis, Job, max_new_tokens_of


class Ended(NamedTuple):
    """A hypothesis that left the batch."""

    hypothesis: Hypothesis
    reason: FinishReason
    num_tokens: int
    finished: bool  # with eos


class Decoding:
    """One job in the batch: its rows in the order of its beam, and what it has to show so far."""

    __slots__ = (
        "alpha",
        "emitted",
        "ended",
        "job",
        "limit",
        "loop_limits",
        "num_finished",
        "rows",
        "started_step",
        "width",
    )

    def __init__(self, job: Job, rules: DecodingRules, started_step: int) -> None:
        penalty = job.options.length_penalty
        self.job = job
        self.width = job.options.beam_size
        self.limit = max_new_tokens_of(job, rules)
        self.alpha = rules.alpha if penalty is None else penalty
        guarded = rules.repetition_guard and job.options.repetition_guard
        self.loop_limits = repetition.thresholds(job.source_ids) if guarded else None
        self.started_step = started_step
        self.rows: list[int] = []
        self.ended: list[Ended] = []
        self.num_finished = 0
        self.emitted = 0

    def next_look(self, length: int) -> int:
        """The number of tokens at which a row of `length` is to be looked at: its limit, or for a loop before that."""
        if self.loop_limits is None:
            return self.limit
        return min(self.limit, max(repetition.MIN_TOKENS, length + repetition.LOOK_EVERY))
