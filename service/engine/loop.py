"""The loop: sole owner of the batch. (Being written: the protocols stand, the engine follows.)"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from service.engine.job import FinishReason
from service.engine.search import Candidates


class Runner(Protocol):
    """Runs the network for the rows of one batch; implemented by `runner` and by the tests' fakes.

    Rows are numbered 0 to n - 1 without holes. The runner tracks each row's position; the engine decides everything
    else. A runner is used by one thread at a time.
    """

    @property
    def max_rows(self) -> int: ...

    @property
    def max_source_tokens(self) -> int: ...

    def add(self, sources: Sequence[Sequence[int]]) -> None:
        """Encode, and append one row per source after the active rows. Sources of one call are of like length."""

    def step(self, next_ids: npt.NDArray[np.int64], k: int, wanted: npt.NDArray[np.int64] | None = None) -> Candidates:
        """One decoder step for all active rows: the k best next tokens of each, [rows, k].

        `next_ids` [rows] are the tokens that the rows go on with (bos for a new one). `wanted` [rows], given only while
        some row is forced along a prefix, names one token per row: its log-probability comes back in
        `Candidates.wanted_log_probs` [rows] (forced tokens are scored too, and need not be among the k best). The
        arrays may be reused by the next step.
        """

    def keep(self, parents: npt.NDArray[np.int64]) -> None:
        """New row j continues old row parents[j]; an empty array drops all rows.

        Parents may repeat (a beam) and drop rows. The caller keeps survivors in place (parents[j] == j) where it can,
        and fills holes from the tail.
        """


class Observer(Protocol):
    """Told what the engine does; implemented by `service.metrics`. Called on the decode threads."""

    def encoded(self, seconds: float, source_tokens: int, segments: int) -> None: ...
    def stepped(self, seconds: float, rows: int, tokens: int) -> None: ...
    def first_token(self, seconds: float) -> None: ...
    def admitted(self, queue_wait_seconds: float) -> None: ...
    def finished(self, reason: FinishReason, source_tokens: int, target_tokens: int) -> None: ...
    def cancelled(self) -> None: ...
    def busy(self, seconds: float) -> None: ...
