"""A job in the batch: its rows, its limits, and the hypotheses that it has finished so far.

`token_choice` decides how its rows go on, `search` when it ends, and `slots` where its rows are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dragoman.service.engine import repetition
from dragoman.service.engine.job import DecodingRules, Hypothesis, Job, max_new_tokens_of

if TYPE_CHECKING:
    from dragoman.service.engine.token_choice import TokenChooser


class ActiveJob:
    """One job in the batch. `rows` are in the order of its beam."""

    __slots__ = (
        "alpha",
        "choosers",
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
        self.choosers: list[TokenChooser] = []  # that it still follows, one after the other
        self.rows: list[int] = []
        self.ended: list[Hypothesis] = []
        self.num_finished = 0  # of those that ended, how many with eos
        self.emitted = 0  # tokens that were streamed

    def end(self, hypothesis: Hypothesis) -> None:
        self.ended.append(hypothesis)
        self.num_finished += hypothesis.finished

    def next_check(self, length: int) -> int:
        """The length at which a row of `length` tokens is checked again: its limit, or earlier to look for a loop."""
        if self.loop_limits is None:
            return self.limit
        return min(self.limit, max(repetition.MIN_TOKENS, length + repetition.LOOK_EVERY))
