"""Whose row is which: who leaves, who takes whose place, who moves, who pauses.

A runner steps the first rows of its arrays, so holes must be filled before the next step: by those who join, or from
the tail. Moving a row copies its caches; staying is free. What a row says is left to `rows`, who lives to `search`.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from dragoman.service.engine.decoding import Decoding
from dragoman.service.engine.rows import Ints, Rows


class Seats:
    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self.owners: list[Decoding | None] = []  # one per row; a hole has none
        self.num_stepping = len(rows.numbers)  # at most; the rows after them pause
        self._holes: list[int] = []  # rows whose hypotheses ended
        self._vacant: list[int] = []  # the holes that jobs are about to join
        self._parents: Ints | None = None  # [rows]: what beams moved since the runner was last told
        self._num_told = 0  # rows that the runner knows of

    @property
    def num_live(self) -> int:
        return self._rows.count - len(self._holes)

    def take(self, decoding: Decoding) -> int:
        """A row for a job that joins: where `settle` left room, lines in front, else at the end."""
        if not self._vacant:
            row = self.append(decoding)
        else:
            row = max(self._vacant) if decoding.job.bulk else min(self._vacant)
            self._vacant.remove(row)
            self.owners[row] = decoding
        decoding.rows.append(row)
        self._num_told = max(self._num_told, row + 1)
        return row

    def append(self, owner: Decoding | None) -> int:
        """A new row at the end."""
        self.owners.append(owner)
        return self._rows.append_row()

    def vacate(self, rows: list[int]) -> None:
        self._holes += rows
        for row in rows:
            self.owners[row] = None

    def note_moves(self, parents: Ints) -> npt.NDArray[np.bool_]:
        """Beams moved rows: new row j is old row parents[j]. Returns which moved, [rows]."""
        self._parents = parents[: self._rows.count]
        moved: npt.NDArray[np.bool_] = self._parents != self._rows.numbers[: self._rows.count]
        return moved

    def clear(self) -> None:
        self._rows.count, self._parents, self.num_stepping = 0, None, len(self._rows.numbers)
        self._num_told = 0
        for state in (self.owners, self._holes, self._vacant):
            state.clear()

    # Before a step

    def settle(self, num_joining: int, num_lines: int, limit: int | None) -> Ints | None:
        """Where rows go before so many jobs join: new row j is old row parents[j]; None when all stay where they are.

        Who joins takes the place of who left, so that nobody moves for them; only holes beyond that are closed. Lines
        among those who join need places below the limit of `pause_beyond`: bulk rows make way for them.
        """
        parents, self._parents = self._parents, None
        before = self._rows.count
        if self._holes:
            if parents is not None:
                self._stay_with_a_child(parents)
            if num_joining < len(self._holes):
                parents = self._close_holes(parents, self.num_live + num_joining)
            self._vacant, self._holes = self._holes, []
            if parents is not None:
                parents[self._vacant] = self._vacant
        if num_lines and limit is not None and limit < self._rows.count:
            parents = self._make_way(parents, num_lines, limit)
        # Rows that a beam opened and left in one step are news, too: who joins may take the last of them first.
        if parents is None or (
            len(parents) == before == self._num_told and not (parents != self._rows.numbers[:before]).any()
        ):
            return None
        self._num_told = len(parents)
        return parents

    def pause_beyond(self, limit: int | None, decodings: Iterable[Decoding]) -> None:
        """Let no more than the first `limit` rows step, but all lines."""
        self.num_stepping = len(self._rows.numbers)
        if limit is not None and limit < self._rows.count:
            lines = [row for decoding in decodings if not decoding.job.bulk for row in decoding.rows]
            self.num_stepping = max(limit, max(lines, default=-1) + 1)

    # Moving

    def _stay_with_a_child(self, parents: Ints) -> None:
        """Where a row's first child ended at once and another lives, that one takes its parent's place: no copy."""
        for i, hole in enumerate(self._holes):
            children = (parents[: self._rows.count] == hole).nonzero()[0].tolist()
            child = next((row for row in children if row != hole and row not in self._holes), None)
            if child is not None:
                self._move(hole, child)
                parents[hole], self._holes[i] = hole, child

    def _close_holes(self, parents: Ints | None, count: int) -> Ints:
        """Be `count` rows: the last live ones move into holes. The holes that stay are for those who join."""
        parents = self._rows.numbers.copy() if parents is None else parents
        holes = [row for row in self._holes if row < count]
        movers = [row for row in range(count, self._rows.count) if self.owners[row] is not None]
        for hole, mover in zip(holes, movers, strict=False):  # few: one by one costs less than an index
            parents[hole] = parents[mover]
            self._move(hole, mover)
        del self.owners[count:]
        self._rows.count, self._holes = count, holes[len(movers) :]
        return parents[:count]

    def _make_way(self, parents: Ints | None, num_lines: int, limit: int) -> Ints | None:
        """Vacate places below the limit: their bulk rows go to holes above it, or to the end."""
        wanted = num_lines - sum(row < limit for row in self._vacant)
        bulk = [row for row in range(limit) if (owner := self.owners[row]) is not None and owner.job.bulk]
        for place in bulk[max(0, len(bulk) - wanted) :] if wanted > 0 else ():
            parents = self._rows.numbers.copy() if parents is None else parents
            to = max(self._vacant, default=-1)
            if to >= limit:
                self._vacant.remove(to)
            else:
                to = self.append(None)
                parents = np.append(parents, to) if to >= len(parents) else parents
            parents[to], parents[place] = parents[place], place
            self._move(to, place)
            self._vacant.append(place)
        return None if parents is None else parents[: self._rows.count]

    def _move(self, to: int, source: int) -> None:
        self._rows.move(to, source)
        owner = self.owners[to] = self.owners[source]
        assert owner is not None, "a hole was moved"
        owner.rows[owner.rows.index(source)] = to
        self.owners[source] = None
