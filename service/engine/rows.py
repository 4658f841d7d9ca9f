"""The rows of a batch as arrays: what each has generated, appended and moved for all rows at once.

What the tokens mean, and which rows live, is left to `search`.
"""

from __future__ import annotations

from functools import reduce
from operator import add, sub

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]


class Rows:
    """Rows 0 to `count` - 1; which of them are holes is known to `seats`.

    A step touches every row, so it must do so in as few array operations as can be: a row's tokens lie in a flat array,
    and what is kept for a row is where its next token goes, not its length.
    """

    def __init__(self, max_rows: int, max_length: int) -> None:
        self.count = 0
        self.numbers = np.arange(max_rows)  # [max_rows]
        self._starts = self.numbers * max_length  # [max_rows]
        self._tokens = np.zeros(max_rows * max_length, np.int64)
        self._log_probs = np.zeros(max_rows * max_length, np.float32)
        self._sums = np.zeros(max_rows)  # of beams' log-probabilities, float64 [max_rows]
        self._places = np.zeros((3, max_rows), np.int64)
        self._next_ids, self._ends, self._looks = self._places  # [max_rows] each
        self._patience = 0  # how many tokens may come before any row has as many as was said; 0: not known

    @property
    def next_ids(self) -> Ints:  # [rows]
        return self._next_ids[: self.count]

    @property
    def lengths(self) -> Ints:  # [rows], a copy
        return self._ends[: self.count] - self._starts[: self.count]

    @property
    def sums(self) -> npt.NDArray[np.float64]:  # [rows]
        return self._sums[: self.count]

    def length(self, row: int) -> int:
        return int(self._ends[row] - self._starts[row])

    def open(self, row: int, first_id: int, look: int) -> None:
        """A new row, with nothing generated, to be looked at when it has so many tokens."""
        start = self._starts[row]
        self._places[:, row] = first_id, start, start + look
        self._sums[row] = 0.0
        self._patience = 0

    def append_row(self) -> int:
        """A new row at the end, to be filled by `open` or `copy`."""
        assert self.count < len(self.numbers), "admission reserves rows"
        self.count += 1
        return self.count - 1

    def append(self, tokens: Ints, log_probs: Floats) -> None:
        """One more token for the first rows, as many as there are tokens."""
        n = len(tokens)
        ends = self._ends[:n]
        self._tokens[ends] = tokens
        self._log_probs[ends] = log_probs
        self._next_ids[:n] = tokens
        ends += 1
        self._patience -= 1

    def extend(self, tokens: Ints, log_probs: Floats) -> None:
        """Some more tokens for the first rows: [steps, rows]"""
        steps, n = tokens.shape
        ends = self._ends[:n]
        # A row alone writes one stretch, for which a slice is cheaper than an index.
        places = slice(ends[0], ends[0] + steps) if n == 1 else (ends + np.arange(steps)[:, None]).ravel()
        self._tokens[places] = tokens.ravel()
        self._log_probs[places] = log_probs.ravel()
        self._next_ids[:n] = tokens[-1]
        ends += steps
        self._patience -= steps

    def patience(self) -> int:
        """How many tokens may come before any row has as many as was said."""
        if self._patience <= 0:
            self._patience = self._least_left()
        return self._patience

    def add_to_sums(self, log_probs: Floats) -> None:
        """For beams, which compare sums at every step."""
        self._sums[: len(log_probs)] += log_probs

    def to_look_at(self, token: int, n: int) -> list[int]:
        """Of the first n rows those that chose this token, or have as many tokens as was said; of most steps none."""
        if self._patience > 0 and token not in self._next_ids[:n].tolist():
            return []
        self._patience = self._least_left()
        each = zip(*self._places[:, :n].tolist(), strict=True)
        return [row for row, (next_id, end, look) in enumerate(each) if next_id == token or end >= look]

    def _least_left(self) -> int:
        """Lists, not arrays, here and above: rows are few, and numpy's own code is cold between two steps."""
        _, ends, looks = self._places[:, : self.count].tolist()
        left: int = min(map(sub, looks, ends))
        return left

    def look_again(self, row: int, length: int) -> None:
        """When the row has so many tokens."""
        self._looks[row] = self._starts[row] + length
        self._patience = 0

    def note_log_prob(self, row: int, log_prob: float) -> None:
        """Put a log-probability after the row's last; the next token overwrites it."""
        self._log_probs[self._ends[row]] = log_prob

    def tokens(self, row: int, start: int, end: int) -> list[int]:
        first = self._starts[row]
        tokens: list[int] = self._tokens[first + start : first + end].tolist()
        return tokens

    def log_probs(self, row: int, start: int, end: int) -> list[float]:
        first = self._starts[row]
        log_probs: list[float] = self._log_probs[first + start : first + end].tolist()
        return log_probs

    def sum_of(self, row: int, num_tokens: int) -> float:
        """Of the first log-probabilities, in the order in which a row sums its own."""
        return reduce(add, self.log_probs(row, 0, num_tokens))

    def copy(self, to: Ints, source: Ints) -> None:
        """Row to[i] becomes what row source[i] was; a row may be the source of several."""
        self._patience = 0
        moved = self._places[:, source]  # [3, moved]
        longest = int((moved[1] - self._starts[source]).max())
        moved[1:] += self._starts[to] - self._starts[source]
        self._places[:, to] = moved
        self._sums[to] = self._sums[source]
        for array in (self._tokens, self._log_probs):
            by_row = array.reshape(len(self.numbers), -1)  # [max_rows, max_length]
            by_row[to, :longest] = by_row[source, :longest]

    def move(self, to: int, source: int) -> None:
        start, new_start, end = self._starts[source], self._starts[to], self._ends[source]
        new_end = end + new_start - start
        self._places[:, to] = self._places[:, source]
        self._places[1:, to] += new_start - start
        self._sums[to] = self._sums[source]
        self._tokens[new_start:new_end] = self._tokens[start:end]
        self._log_probs[new_start:new_end] = self._log_probs[start:end]
