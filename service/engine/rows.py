"""The rows of a batch as arrays: what each has generated, appended and moved for all rows at once.

What the tokens mean, and which rows live, is left to `search`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from service.engine.repetition import MAX_PERIOD

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]

# A row is one record, so that moving a row moves all of it; its tokens and log-probabilities lie in two arrays beside.
_RECORD = np.dtype(
    [
        ("next_id", np.int64),
        ("length", np.int64),  # generated tokens
        ("limit", np.int64),
        ("sum", np.float64),  # of log-probabilities
        ("tail", np.int64, (MAX_PERIOD,)),  # the last tokens, newest first
        ("runs", np.int64, (MAX_PERIOD,)),  # how many of the last tokens equal the one a period before them
        ("loop_at", np.int64, (MAX_PERIOD,)),  # the runs that make a loop
    ]
)


class Rows:
    """Rows 0 to `count` - 1, without holes once `close_holes` has run."""

    def __init__(self, max_rows: int, max_length: int) -> None:
        self.count = 0
        self.numbers = np.arange(max_rows)  # [max_rows]
        self._records: npt.NDArray[Any] = np.zeros(max_rows, _RECORD)
        self._tokens = np.zeros((max_rows, max_length), np.int32)
        self._log_probs = np.zeros((max_rows, max_length), np.float32)
        # Views of the records' fields: looking a field up costs more than using it.
        self._next_ids: Ints = self._records["next_id"]
        self._lengths: Ints = self._records["length"]
        self._limits: Ints = self._records["limit"]
        self._sums: npt.NDArray[np.float64] = self._records["sum"]
        self._tails: Ints = self._records["tail"]
        self._runs: Ints = self._records["runs"]
        self._loop_at: Ints = self._records["loop_at"]

    @property
    def next_ids(self) -> Ints:  # [rows]
        return self._next_ids[: self.count]

    @property
    def lengths(self) -> Ints:  # [rows]
        return self._lengths[: self.count]

    @property
    def limits(self) -> Ints:  # [rows]
        return self._limits[: self.count]

    @property
    def sums(self) -> npt.NDArray[np.float64]:  # [rows]
        return self._sums[: self.count]

    @property
    def runs(self) -> Ints:  # [rows, periods]
        return self._runs[: self.count]

    @property
    def loop_at(self) -> Ints:  # [rows, periods]
        return self._loop_at[: self.count]

    def open(self, first_id: int, limits: Sequence[int], loop_at: Sequence[Ints]) -> range:
        """New rows at the end, with nothing generated."""
        new = slice(self.count, self.count + len(limits))
        assert new.stop <= len(self.numbers), "admission reserves rows"
        self._next_ids[new] = first_id
        self._lengths[new] = 0
        self._limits[new] = limits
        self._sums[new] = 0.0
        self._tails[new] = -1
        self._runs[new] = 0
        self._loop_at[new] = loop_at
        self.count = new.stop
        return range(new.start, new.stop)

    def open_copy(self) -> int:
        """A new row at the end, to be filled by `copy`."""
        assert self.count < len(self.numbers), "admission reserves the rows of a beam"
        self.count += 1
        return self.count - 1

    def append(self, tokens: Ints, log_probs: Floats) -> None:
        """One more token for every row; both arrays are [rows]."""
        n = self.count
        numbers, lengths, runs, tails = self.numbers[:n], self._lengths[:n], self._runs[:n], self._tails[:n]
        self._tokens[numbers, lengths] = tokens
        self._log_probs[numbers, lengths] = log_probs
        lengths += 1
        self._sums[:n] += log_probs
        self._next_ids[:n] = tokens
        runs += 1
        runs *= tails == tokens[:, None]  # [rows, periods]
        tails[:, 1:] = tails[:, :-1]
        tails[:, 0] = tokens

    def note_log_prob(self, row: int, log_prob: float) -> None:
        """Put a log-probability after the row's last; the next token overwrites it."""
        self._log_probs[row, self._lengths[row]] = log_prob

    def tokens(self, row: int, start: int, end: int) -> list[int]:
        tokens: list[int] = self._tokens[row, start:end].tolist()
        return tokens

    def log_probs(self, row: int, start: int, end: int) -> list[float]:
        log_probs: list[float] = self._log_probs[row, start:end].tolist()
        return log_probs

    def sum_of(self, row: int, num_tokens: int) -> float:
        """Of the first log-probabilities, in the order in which a row sums its own."""
        return float(np.cumsum(self._log_probs[row, :num_tokens], dtype=np.float64)[-1])

    def copy(self, to: Ints, source: Ints) -> None:
        """Row to[i] becomes what row source[i] was; a row may be the source of several."""
        longest = int(self.lengths.max(initial=0))
        self._records[to] = self._records[source]
        self._tokens[to, :longest] = self._tokens[source, :longest]
        self._log_probs[to, :longest] = self._log_probs[source, :longest]

    def close_holes(self, dead: list[int]) -> tuple[list[int], list[int]]:
        """Drop rows: the last ones move into the holes, all others stay. Returns the holes and who moved there."""
        gone = set(dead)
        count = self.count - len(gone)
        holes = [row for row in dead if row < count]
        movers = [row for row in range(count, self.count) if row not in gone]
        for hole, mover in zip(holes, movers, strict=True):  # few: one by one costs less than an index
            length = self._lengths[mover]
            self._records[hole] = self._records[mover]
            self._tokens[hole, :length] = self._tokens[mover, :length]
            self._log_probs[hole, :length] = self._log_probs[mover, :length]
        self.count = count
        return holes, movers
