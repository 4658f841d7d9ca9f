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

    @property
    def next_ids(self) -> Ints:  # [rows]
        view: Ints = self._records["next_id"][: self.count]
        return view

    @property
    def lengths(self) -> Ints:  # [rows]
        view: Ints = self._records["length"][: self.count]
        return view

    @property
    def limits(self) -> Ints:  # [rows]
        view: Ints = self._records["limit"][: self.count]
        return view

    @property
    def sums(self) -> npt.NDArray[np.float64]:  # [rows]
        view: npt.NDArray[np.float64] = self._records["sum"][: self.count]
        return view

    @property
    def runs(self) -> Ints:  # [rows, periods]
        view: Ints = self._records["runs"][: self.count]
        return view

    @property
    def loop_at(self) -> Ints:  # [rows, periods]
        view: Ints = self._records["loop_at"][: self.count]
        return view

    def open(self, first_id: int, limit: int, loop_at: Ints) -> int:
        """A new row at the end, with nothing generated."""
        row = self.open_copy()
        self._records[row] = (first_id, 0, limit, 0.0, -1, 0, loop_at)
        return row

    def open_copy(self) -> int:
        """A new row at the end, to be filled by `copy`."""
        assert self.count < len(self.numbers), "admission reserves the rows of a beam"
        self.count += 1
        return self.count - 1

    def append(self, tokens: Ints, log_probs: Floats) -> None:
        """One more token for every row; both arrays are [rows]."""
        records, numbers = self._records[: self.count], self.numbers[: self.count]
        lengths, runs, tail = records["length"], records["runs"], records["tail"]
        self._tokens[numbers, lengths] = tokens
        self._log_probs[numbers, lengths] = log_probs
        lengths += 1
        sums = records["sum"]
        sums += log_probs
        records["next_id"] = tokens
        runs += 1
        runs *= tail == tokens[:, None]  # [rows, periods]
        tail[:, 1:] = tail[:, :-1]
        tail[:, 0] = tokens

    def note_log_prob(self, row: int, log_prob: float) -> None:
        """Put a log-probability after the row's last; the next token overwrites it."""
        self._log_probs[row, self._records["length"][row]] = log_prob

    def history(self, row: int, start: int, end: int) -> tuple[list[int], Floats]:
        """Tokens and log-probabilities `start` to `end` of a row."""
        tokens: list[int] = self._tokens[row, start:end].tolist()
        return tokens, self._log_probs[row, start:end]

    def copy(self, to: Sequence[int] | Ints, source: Sequence[int] | Ints) -> None:
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
        if holes:
            self.copy(holes, movers)
        self.count = count
        return holes, movers
