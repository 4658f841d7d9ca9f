"""Which job has which slot of the batch: slots are taken, freed, closed and paused.

A slot is one numbered row of the runner's arrays. The runner steps the first slots, so no slot among them may be free
when the next step comes: jobs that join fill the free slots, or the last rows move into them. Moving a row copies its
caches; a row that stays costs nothing. What a row has generated is kept by `rows`; when it ends, `search` decides.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from dragoman.service.engine.active_job import ActiveJob
from dragoman.service.engine.rows import Ints, Rows


class Slots:
    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self.owners: list[ActiveJob | None] = []  # one for each slot; a free slot has none
        self.num_stepping = len(rows.numbers)  # at most; the rows after them pause
        self._free: list[int] = []  # slots whose rows ended
        self._reserved: list[int] = []  # the free slots that jobs are about to take
        self._parents: Ints | None = None  # [rows]: moves by beams that the runner does not know yet
        self._num_known = 0  # rows that the runner knows

    @property
    def num_live(self) -> int:
        return self._rows.count - len(self._free)

    def take(self, active: ActiveJob) -> int:
        """A slot for a job that joins: the first reserved one (for a bulk job the last), or a new one."""
        if not self._reserved:
            row = self.append(active)
        else:
            row = max(self._reserved) if active.job.bulk else min(self._reserved)
            self._reserved.remove(row)
            self.owners[row] = active
        active.rows.append(row)
        self._num_known = max(self._num_known, row + 1)
        return row

    def append(self, owner: ActiveJob | None) -> int:
        """A new slot at the end."""
        self.owners.append(owner)
        return self._rows.append_row()

    def free(self, rows: list[int]) -> None:
        self._free += rows
        for row in rows:
            self.owners[row] = None

    def note_moves(self, parents: Ints) -> npt.NDArray[np.bool_]:
        """Beams moved rows: new row j is old row parents[j]. Returns which rows moved, [rows]."""
        self._parents = parents[: self._rows.count]
        moved: npt.NDArray[np.bool_] = self._parents != self._rows.numbers[: self._rows.count]
        return moved

    def clear(self) -> None:
        self._rows.count, self._parents, self.num_stepping = 0, None, len(self._rows.numbers)
        self._num_known = 0
        for state in (self.owners, self._free, self._reserved):
            state.clear()

    # Before a step

    def settle(self, num_joining: int, num_interactive: int, limit: int | None) -> Ints | None:
        """How rows move before `num_joining` jobs join: new row j is old row parents[j]; None when all rows stay.

        Jobs that join take free slots, so that no row moves for them; only the other free slots are closed. The
        interactive jobs among them need slots below the limit of `pause_beyond`: bulk rows move out of those.
        """
        parents, self._parents = self._parents, None
        before = self._rows.count
        if self._free:
            if parents is not None:
                self._stay_with_a_child(parents)
            if num_joining < len(self._free):
                parents = self._close_free(parents, self.num_live + num_joining)
            self._reserved, self._free = self._free, []
            if parents is not None:
                parents[self._reserved] = self._reserved
        if num_interactive and limit is not None and limit < self._rows.count:
            parents = self._move_bulk_out(parents, num_interactive, limit)
        # The runner must also learn of rows that a beam opened and left within one step: a job may take such a slot.
        if parents is None or (
            len(parents) == before == self._num_known and not (parents != self._rows.numbers[:before]).any()
        ):
            return None
        self._num_known = len(parents)
        return parents

    def pause_beyond(self, limit: int | None, jobs: Iterable[ActiveJob]) -> None:
        """Let only the first `limit` rows step, and all interactive rows."""
        self.num_stepping = len(self._rows.numbers)
        if limit is not None and limit < self._rows.count:
            interactive = [row for active in jobs if not active.job.bulk for row in active.rows]
            self.num_stepping = max(limit, max(interactive, default=-1) + 1)

    # Moving

    def _stay_with_a_child(self, parents: Ints) -> None:
        """Where the first child of a row ended at once, another child takes the parent's slot: no copy is needed."""
        for i, slot in enumerate(self._free):
            children = (parents[: self._rows.count] == slot).nonzero()[0].tolist()
            child = next((row for row in children if row != slot and row not in self._free), None)
            if child is not None:
                self._move(slot, child)
                parents[slot], self._free[i] = slot, child

    def _close_free(self, parents: Ints | None, count: int) -> Ints:
        """Shrink to `count` rows: the last rows move into free slots. Free slots that remain are for jobs that join."""
        parents = self._rows.numbers.copy() if parents is None else parents
        free = [row for row in self._free if row < count]
        movers = [row for row in range(count, self._rows.count) if self.owners[row] is not None]
        for slot, mover in zip(free, movers, strict=False):  # few: one by one costs less than an index
            parents[slot] = parents[mover]
            self._move(slot, mover)
        del self.owners[count:]
        self._rows.count, self._free = count, free[len(movers) :]
        return parents[:count]

    def _move_bulk_out(self, parents: Ints | None, num_interactive: int, limit: int) -> Ints | None:
        """Reserve slots below the limit: their bulk rows move to reserved slots above it, or to the end."""
        wanted = num_interactive - sum(row < limit for row in self._reserved)
        bulk = [row for row in range(limit) if (owner := self.owners[row]) is not None and owner.job.bulk]
        for slot in bulk[max(0, len(bulk) - wanted) :] if wanted > 0 else ():
            parents = self._rows.numbers.copy() if parents is None else parents
            to = max(self._reserved, default=-1)
            if to >= limit:
                self._reserved.remove(to)
            else:
                to = self.append(None)
                parents = np.append(parents, to) if to >= len(parents) else parents
            parents[to], parents[slot] = parents[slot], slot
            self._move(to, slot)
            self._reserved.append(slot)
        return None if parents is None else parents[: self._rows.count]

    def _move(self, to: int, source: int) -> None:
        self._rows.move(to, source)
        owner = self.owners[to] = self.owners[source]
        assert owner is not None, "a free slot was moved"
        owner.rows[owner.rows.index(source)] = to
        self.owners[source] = None
