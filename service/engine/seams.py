"""What a decode loop needs of others: a runner that runs the network, an observer that is told.

The loop knows nothing more of them, so that tests put fakes here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from dragoman.service.engine.job import FinishReason
from dragoman.service.engine.rows import Ints
from dragoman.service.engine.search import Candidates, Stretch


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
        """Encode each source into its row: one that the caller has no more use for, or the next after the last.

        Sources of one call are of like length. There are no holes again when the next step comes.
        """

    def step(self, next_ids: Ints, k: int, wanted: Ints | None = None) -> Candidates:
        """One decoder step for the first rows, as many as there are tokens: the k best next tokens of each, [rows, k].

        `next_ids` [rows] are the tokens that the rows go on with (bos for a new one); rows after them pause. `wanted`
        [rows], given only while some row is forced along a prefix, names one token per row: its log-probability is in
        `Candidates.wanted_log_probs` [rows] (forced tokens are scored too, and need not be among the k best). The
        arrays may be reused by the next step.
        """

    def stride(self, next_ids: Ints, most: int, end_id: int, went: Callable[[int], bool]) -> Stretch:
        """Steps for the first rows, each going on with its best token: `most`, or until a row chooses `end_id`.

        The runner may take several steps in one run; those beyond an end do not count. After every run `went` is told
        how many steps it took, and says whether to go on.
        """

    def keep(self, parents: Ints) -> None:
        """New row j continues old row parents[j]; an empty array drops all rows.

        Parents may repeat (a beam) and drop rows. The caller keeps survivors in place (parents[j] == j) where it can,
        and fills holes from the tail. A hole that an `add` is about to fill names itself.
        """


def stride_by_steps(runner: Runner, next_ids: Ints, most: int, end_id: int, went: Callable[[int], bool]) -> Stretch:
    """A stride for runners that have nothing better than one step after another."""
    ids, log_probs = [], []
    while True:
        candidates = runner.step(next_ids, 1)
        ids.append(candidates.ids[:, 0].copy())
        log_probs.append(candidates.log_probs[:, 0].copy())
        next_ids = ids[-1]
        if not went(1) or end_id in next_ids or len(ids) == most:
            return Stretch(np.stack(ids), np.stack(log_probs))


class Observer(Protocol):
    """Told what the engine does; implemented by `dragoman.service.telemetry.metrics`. Called on the decode threads."""

    def encoded(self, seconds: float, source_tokens: int, segments: int) -> None: ...
    def stepped(self, seconds: Sequence[float], rows: int, tokens: int) -> None: ...
    def first_token(self, seconds: float) -> None: ...
    def admitted(self, queue_wait_seconds: float) -> None: ...
    def finished(self, reason: FinishReason, source_tokens: int, target_tokens: int) -> None: ...
    def cancelled(self) -> None: ...
    def busy(self, seconds: float) -> None: ...


class SilentObserver:
    """Tells nobody."""

    def encoded(self, seconds: float, source_tokens: int, segments: int) -> None: ...
    def stepped(self, seconds: Sequence[float], rows: int, tokens: int) -> None: ...
    def first_token(self, seconds: float) -> None: ...
    def admitted(self, queue_wait_seconds: float) -> None: ...
    def finished(self, reason: FinishReason, source_tokens: int, target_tokens: int) -> None: ...
    def cancelled(self) -> None: ...
    def busy(self, seconds: float) -> None: ...
