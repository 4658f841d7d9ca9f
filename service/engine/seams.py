"""What a decode loop needs from outside: a runner for the network, and an observer that is told what happens.

The loop knows nothing else about them. Tests put their fakes here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from dragoman.service.engine.job import FinishReason
from dragoman.service.engine.rows import Floats, Ints


class Candidates(NamedTuple):
    """What one step of a runner returns, best first; ties by lower id."""

    ids: Ints  # [rows, k]
    log_probs: Floats  # [rows, k]
    wanted_log_probs: Floats | None = None  # [rows], of the tokens that the step was asked about


class MultiStep(NamedTuple):
    """What several greedy steps of a runner return: the best token of each row, step by step."""

    ids: Ints  # [steps, rows]
    log_probs: Floats  # [steps, rows]


class Runner(Protocol):
    """Runs the network for the rows of one batch; implemented by `runner` and by the tests' fakes.

    Rows are numbered 0 to n - 1. The runner tracks each row's position; the engine decides everything else. A runner is
    used by one thread at a time.
    """

    @property
    def max_rows(self) -> int: ...

    @property
    def max_source_tokens(self) -> int: ...

    def add(self, sources: Sequence[Sequence[int]], rows: Sequence[int]) -> None:
        """Encode each source into its row: a free one, or the next after the last.

        The sources of one call have similar lengths. When the next step comes, no row before the last is free.
        """

    def step(self, next_ids: Ints, k: int, wanted: Ints | None = None) -> Candidates:
        """One decoder step for the first `len(next_ids)` rows: the k best next tokens of each, [rows, k].

        `next_ids` [rows] are the tokens that the rows go on with (bos for a new row). The rows after them pause.
        `wanted` [rows] names one token per row, and `Candidates.wanted_log_probs` [rows] then has its log-probability,
        whether it is among the k best or not; it is given only while a prefix is forced. The next step may reuse the
        arrays.
        """

    def multi_step(self, next_ids: Ints, most: int, end_id: int, go_on: Callable[[int], bool]) -> MultiStep:
        """Up to `most` greedy steps for the first rows; they stop after a step in which a row chooses `end_id`.

        The runner may take several steps in one run; those after an end do not count. After every run it calls
        `go_on` with the number of steps of that run, and stops when the answer is False.
        """

    def keep(self, parents: Ints) -> None:
        """New row j continues old row parents[j]; an empty array drops all rows.

        A parent may come several times (a beam) or never (its row is dropped). The caller leaves rows in place
        (parents[j] == j) where it can, and fills free slots with the last rows. A free slot that the next `add` fills
        is its own parent.
        """


def multi_step_by_steps(
    runner: Runner, next_ids: Ints, most: int, end_id: int, go_on: Callable[[int], bool]
) -> MultiStep:
    """`Runner.multi_step` for runners that can only take one step after another."""
    ids, log_probs = [], []
    while True:
        candidates = runner.step(next_ids, 1)
        ids.append(candidates.ids[:, 0].copy())
        log_probs.append(candidates.log_probs[:, 0].copy())
        next_ids = ids[-1]
        if not go_on(1) or end_id in next_ids or len(ids) == most:
            return MultiStep(np.stack(ids), np.stack(log_probs))


class Observer(Protocol):
    """Is told what the engine does, on the decode threads; `dragoman.service.telemetry.metrics` implements it."""

    def encoded(self, seconds: float, source_tokens: int, segments: int) -> None: ...
    def stepped(self, seconds: Sequence[float], rows: int, tokens: int) -> None: ...
    def first_token(self, seconds: float) -> None: ...
    def admitted(self, queue_wait_seconds: float) -> None: ...
    def finished(self, reason: FinishReason, source_tokens: int, target_tokens: int) -> None: ...
    def cancelled(self) -> None: ...
    def busy(self, seconds: float) -> None: ...


class SilentObserver:
    """Does nothing with what it is told."""

    def encoded(self, seconds: float, source_tokens: int, segments: int) -> None: ...
    def stepped(self, seconds: Sequence[float], rows: int, tokens: int) -> None: ...
    def first_token(self, seconds: float) -> None: ...
    def admitted(self, queue_wait_seconds: float) -> None: ...
    def finished(self, reason: FinishReason, source_tokens: int, target_tokens: int) -> None: ...
    def cancelled(self) -> None: ...
    def busy(self, seconds: float) -> None: ...
