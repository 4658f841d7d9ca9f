"""Turns a row that ends into a hypothesis: its tokens, its score, and why it ended.

When a row ends is decided by `search`, or by `beam` for candidates that end a sentence.
"""

from __future__ import annotations

import math

import numpy as np

from dragoman.service.engine.active_job import ActiveJob
from dragoman.service.engine.job import DecodingRules, FinishReason, Hypothesis
from dragoman.service.engine.rows import Rows


class Hypotheses:
    """Writes the hypotheses of one batch."""

    def __init__(self, rules: DecodingRules, rows: Rows) -> None:
        self._rules, self._rows = rules, rows
        self.cut = np.zeros(len(rows.numbers), bool)  # [max_rows]: eos was forced here, because the limit was reached

    def end(self, active: ActiveJob, row: int, num_tokens: int, total: float, reason: FinishReason) -> Hypothesis:
        """The first `num_tokens` of a row end without eos; their log-probabilities sum to `total`."""
        return self._write(active, row, num_tokens, total, reason, finished=False)

    def finish(self, active: ActiveJob, row: int, num_tokens: int, total: float) -> Hypothesis:
        """The last of `num_tokens` is eos, which the hypothesis leaves out."""
        reason = FinishReason.LENGTH if self.cut[row] else FinishReason.EOS
        return self._write(active, row, num_tokens, total, reason, finished=True)

    def total(self, active: ActiveJob, row: int, length: int) -> float:
        """The sum of a row's log-probabilities. Greedy rows are summed only here; the result has the same bits."""
        return self._rows.sum_of(row, length) if active.width == 1 else float(self._rows.sums[row])

    def score(self, total: float, num_tokens: int, alpha: float) -> float:
        match self._rules.normalization:
            case "gnmt":
                return total / float(((5.0 + num_tokens) / 6.0) ** alpha)
            case "length":
                return total / float(num_tokens**alpha)
            case "length_without_end":
                return total / float((num_tokens - 1) ** alpha) if num_tokens > 1 else -math.inf
            case "none":
                return total

    def _write(
        self, active: ActiveJob, row: int, num_tokens: int, total: float, reason: FinishReason, finished: bool
    ) -> Hypothesis:
        hypothesis = Hypothesis(
            ids=tuple(self._rows.tokens(row, 0, num_tokens - finished)),
            score=self.score(total, num_tokens, active.alpha),
            log_probs=tuple(self._rows.log_probs(row, 0, num_tokens)) if active.job.options.log_probs else (),
            finished=finished,
            finish_reason=reason,
        )
        active.end(hypothesis)
        return hypothesis
