"""The rows of a batch as arrays: what each row has generated, appended and moved for all rows at once.

What the tokens mean is decided by `search`; which rows are free, by `slots`.
"""

from __future__ import annotations

from functools import reduce
from operator import add, sub

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]


class Rows:
    """Rows 0 to `count` - 1; `slots` knows which of them are free.

    A step touches every row, so it uses as few array operations as possible: the tokens of all rows lie in one flat
    array, and a row keeps the index of its next token there, not its length.
    """

    def __init__(self, max_rows: int, max_length: int) -> None:
        self.count = 0
        self.numbers = np.arange(max_rows)  # [max_rows]
        self._starts = self.numbers * max_length  # [max_rows]
        self._tokens = np.zeros(max_rows * max_length, np.int64)
        self._log_probs = np.zeros(max_rows * max_length, np.float32)
        self._sums = np.zeros(max_rows)  # of beams' log-probabilities, float64 [max_rows]
        self._columns = np.zeros((3, max_rows), np.int64)
        self._next_ids, self._ends, self._checks = self._columns  # [max_rows] each
        self._quiet = 0  # steps before the first row is due for a check; 0: not known

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

    def open(self, row: int, first_id: int, check_at: int) -> None:
        """A new row that has generated nothing; it is checked when it has `check_at` tokens."""
        start = self._starts[row]
        self._columns[:, row] = first_id, start, start + check_at
        self._sums[row] = 0.0
        self._quiet = 0

    def append_row(self) -> int:
        """A new row at the end, to be filled by `open` or `copy`."""
        assert self.count < len(self.numbers), "admission reserves rows"
        self.count += 1
        return self.count - 1

    def append(self, tokens: Ints, log_probs: Floats) -> None:
        """One more token for each of the first `len(tokens)` rows."""
        n = len(tokens)
        ends = self._ends[:n]
        self._tokens[ends] = tokens
        self._log_probs[ends] = log_probs
        self._next_ids[:n] = tokens
        ends += 1
        self._quiet -= 1

    def extend(self, tokens: Ints, log_probs: Floats) -> None:
        """Some more tokens for the first rows: [steps, rows]"""
        steps, n = tokens.shape
        ends = self._ends[:n]
        # A row alone writes neighbours, for which a slice is cheaper than an index.
        where = slice(ends[0], ends[0] + steps) if n == 1 else (ends + np.arange(steps)[:, None]).ravel()
        self._tokens[where] = tokens.ravel()
        self._log_probs[where] = log_probs.ravel()
        self._next_ids[:n] = tokens[-1]
        ends += steps
        self._quiet -= steps

    def quiet_steps(self) -> int:
        """How many steps there are before the first row is due for a check."""
        if self._quiet <= 0:
            self._quiet = self._least_left()
        return self._quiet

    def add_to_sums(self, log_probs: Floats) -> None:
        """For beams, which compare sums at every step."""
        self._sums[: len(log_probs)] += log_probs

    def to_check(self, token: int, n: int) -> list[int]:
        """Of the first n rows those that chose this token or are due for a check; in most steps none."""
        if self._quiet > 0 and token not in self._next_ids[:n].tolist():
            return []
        self._quiet = self._least_left()
        each = zip(*self._columns[:, :n].tolist(), strict=True)
        return [row for row, (next_id, end, check) in enumerate(each) if next_id == token or end >= check]

    def _least_left(self) -> int:
        """Lists here and above are faster than arrays: rows are few, and NumPy's code is cold between two steps."""
        _, ends, checks = self._columns[:, : self.count].tolist()
        left: int = min(map(sub, checks, ends))
        return left

    def check_again(self, row: int, length: int) -> None:
        """Check the row when it has `length` tokens."""
        self._checks[row] = self._starts[row] + length
        self._quiet = 0

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
        """The sum of the first log-probabilities, added one by one as a beam does at every step."""
        return reduce(add, self.log_probs(row, 0, num_tokens))

    def copy(self, to: Ints, source: Ints) -> None:
        """Row to[i] becomes what row source[i] was; a row may be the source of several."""
        self._quiet = 0
        moved = self._columns[:, source]  # [3, moved]
        longest = int((moved[1] - self._starts[source]).max())
        moved[1:] += self._starts[to] - self._starts[source]
        self._columns[:, to] = moved
        self._sums[to] = self._sums[source]
        for array in (self._tokens, self._log_probs):
            by_row = array.reshape(len(self.numbers), -1)  # [max_rows, max_length]
            by_row[to, :longest] = by_row[source, :longest]

    def move(self, to: int, source: int) -> None:
        start, new_start, end = self._starts[source], self._starts[to], self._ends[source]
        new_end = end + new_start - start
        self._columns[:, to] = self._columns[:, source]
        self._columns[1:, to] += new_start - start
        self._sums[to] = self._sums[source]
        self._tokens[new_start:new_end] = self._tokens[start:end]
        self._log_probs[new_start:new_end] = self._log_probs[start:end]
