"""Beam search: the best candidates of a beam's rows go on, in as many rows as the beam is wide.

The arithmetic runs for all beams of one width at once. A candidate that ends a sentence becomes a hypothesis here; when
a job with a beam may leave the batch, `BeamSearch.finished` says.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dragoman.service.engine.active_job import ActiveJob
from dragoman.service.engine.choosing import Choices, Question
from dragoman.service.engine.hypotheses import Hypotheses
from dragoman.service.engine.job import DecodingRules
from dragoman.service.engine.rows import Floats, Ints, Rows
from dragoman.service.engine.seams import Candidates
from dragoman.service.engine.slots import Slots

Sums = npt.NDArray[np.float64]


class BeamSearch:
    """Chooses the tokens of all jobs whose beam is wider than one row."""

    def __init__(self, rules: DecodingRules, rows: Rows, slots: Slots, hypotheses: Hypotheses) -> None:
        self._rules, self._rows, self._slots, self._hypotheses = rules, rows, slots, hypotheses
        self._jobs: dict[int, list[ActiveJob]] = {}  # by width

    def add(self, active: ActiveJob) -> None:
        self._jobs.setdefault(active.width, []).append(active)

    def remove(self, active: ActiveJob) -> None:
        self._jobs[active.width].remove(active)
        if not self._jobs[active.width]:
            del self._jobs[active.width]

    def ask(self, question: Question) -> Question:
        # All children of a beam may come from one row, and a row has one candidate that ends: width + 1 are enough.
        return Question(question.next_ids, max(question.k, max(self._jobs) + 1), question.wanted)

    def choose(self, candidates: Candidates, choices: Choices) -> Choices:
        choices = Choices(choices.tokens, choices.log_probs, self._rows.numbers.copy())
        for width in self._jobs:
            self._branch(width, candidates, choices)
        return choices

    def finished(self) -> list[ActiveJob]:
        """The jobs whose rows have all ended, or that have enough hypotheses."""
        jobs = [active for of_width in self._jobs.values() for active in of_width]
        # Few of them in any step, so the cheap test comes first.
        ripe = [each for each in jobs if each.num_finished >= each.width or not each.rows]
        return [active for active in ripe if not active.rows or self._may_stop(active)]

    def _may_stop(self, active: ActiveJob) -> bool:
        """Whether a job with as many finished hypotheses as its beam is wide needs no more of them."""
        if self._rules.stop_rule == "count":
            return True
        scores = sorted((hypothesis.score for hypothesis in active.ended if hypothesis.finished), reverse=True)
        best_sum = float(self._rows.sums[active.rows].max())
        length = active.limit if self._rules.stop_rule == "bound" else self._rows.length(active.rows[0])
        return self._hypotheses.score(best_sum, length, active.alpha) <= scores[active.width - 1]

    def _branch(self, width: int, candidates: Candidates, choices: Choices) -> None:
        """Let every beam of one width go on: full beams together, those that open or shrink one by one."""
        full = [active for active in self._jobs[width] if len(active.rows) == width]
        if full and self._branch_full(full, candidates, choices):
            others = [active for active in self._jobs[width] if len(active.rows) < width]
        else:
            others = self._jobs[width]
        if others:
            rows = [active.rows for active in others]
            best = best_of_beams(rows, self._rows.sums, candidates.ids, candidates.log_probs, 2 * width)
            for active, of_beam in zip(others, best, strict=True):
                self._branch_one(active, of_beam, choices)

    def _branch_full(self, full: list[ActiveJob], candidates: Candidates, choices: Choices) -> bool:
        """False when some beam has too few candidates."""
        assert choices.parents is not None
        rows = [active.rows for active in full]
        branches = branch_full(rows, self._rows.sums, candidates.ids, candidates.log_probs, self._rules.eos_id)
        if branches is None:
            return False
        for beam, ending in branches.ended:
            self._end(full[beam], ending)
        choices.parents[branches.rows] = branches.parents
        choices.tokens[branches.rows] = branches.tokens
        choices.log_probs[branches.rows] = branches.log_probs
        for active, own in zip(full, branches.rows.tolist(), strict=True):
            active.rows = own
        return True

    def _branch_one(self, active: ActiveJob, best: Iterable[Choice], choices: Choices) -> None:
        """The best candidates live on, as many as the beam is wide; those that end before them are hypotheses."""
        assert choices.parents is not None
        children: list[tuple[int, int, float]] = []
        for rank, choice in enumerate(best):
            if choice.total == -np.inf or len(children) == active.width:
                break
            if choice.token != self._rules.eos_id:
                children.append(choice[:3])
            elif rank < active.width:
                self._end(active, choice)
        active.rows = self._slots_of_children(active, [parent for parent, _, _ in children])
        for row, (parent, token, log_prob) in zip(active.rows, children, strict=True):
            choices.parents[row], choices.tokens[row], choices.log_probs[row] = parent, token, log_prob

    def _end(self, active: ActiveJob, choice: Choice) -> None:
        """A row with eos after it is a hypothesis that ended."""
        self._rows.note_log_prob(choice.parent, choice.log_prob)
        self._hypotheses.finish(active, choice.parent, self._rows.length(choice.parent) + 1, choice.total)

    def _slots_of_children(self, active: ActiveJob, parents: list[int]) -> list[int]:
        """The first child of a row stays in its slot; the others take the beam's free slots, then new ones."""
        free = [row for row in active.rows if row not in parents]
        rows: list[int] = []
        for parent in parents:
            if parent not in rows:
                rows.append(parent)
            elif free:
                rows.append(free.pop(0))
            else:
                rows.append(self._slots.append(active))
        self._slots.free(free)
        return rows


class Choice(NamedTuple):
    """One way for a beam to go on."""

    parent: int  # the row that goes on
    token: int
    log_prob: float
    total: float  # of the row's log-probabilities and this one; minus infinity where there is no choice


class Branches(NamedTuple):
    """How full beams go on: as many children as they have rows, each in a slot of its own beam."""

    rows: Ints  # [beams, width], the children's, best first
    parents: Ints  # [beams, width]
    tokens: Ints  # [beams, width]
    log_probs: Floats  # [beams, width]
    ended: list[tuple[int, Choice]]  # the number of the beam, and a candidate that ends among the best `width`


def branch_full(beams: Sequence[list[int]], sums: Sums, ids: Ints, log_probs: Floats, eos_id: int) -> Branches | None:
    """All beams have `width` rows. None where some beam lacks candidates: then `best_of_beams` goes through them.

    Flat indices and `take` throughout: an index of two arrays costs several times as much, and beams are small.
    """
    rows = np.array(beams)  # [beams, width]
    (num_beams, width), (_, k) = rows.shape, ids.shape
    firsts = np.arange(0, num_beams * width, width)[:, None]  # where each beam's rows begin, [beams, 1]
    every = (sums.take(rows)[:, :, None] + log_probs.take(rows, 0)).reshape(num_beams, -1)  # [beams, width * k]
    order = np.argsort(-every, axis=1, kind="stable")[:, : 2 * width]  # [beams, 2 width], best first
    totals = every.take(k * firsts + order)
    if order.shape[1] < 2 * width or totals[:, -1].min() == -np.inf:
        return None
    parents, ranks = np.divmod(order, k)
    of_parents = rows.take(firsts + parents)  # [beams, 2 width], rows
    flat = of_parents * k + ranks
    tokens, chosen = ids.take(flat), log_probs.take(flat)
    ends = tokens == eos_id
    ended = [
        (int(b), Choice(int(of_parents[b, c]), eos_id, float(chosen[b, c]), float(totals[b, c])))
        for b, c in zip(*ends[:, :width].nonzero(), strict=True)
    ]
    # A row has one candidate that ends, so at least `width` of 2 x width go on.
    going = np.argsort(ends, axis=1, kind="stable")[:, :width] + 2 * firsts  # [beams, width], flat
    slots = _slots(parents.take(going))
    return Branches(rows.take(firsts + slots), of_parents.take(going), tokens.take(going), chosen.take(going), ended)


def _slots(parents: Ints) -> Ints:
    """[beams, width] -> the first child of a row stays in its slot, the others take the free slots, in order."""
    num_beams, width = parents.shape
    same = parents[:, :, None] == parents[:, None, :]  # [beams, child, child]
    later = (same & _earlier(width)).any(2)  # [beams, width]: an earlier child has the same parent
    used = (parents[:, :, None] == np.arange(width)).any(1)  # [beams, slot]
    free = np.argsort(used, axis=1, kind="stable")  # [beams, width], free slots first
    firsts = np.arange(0, num_beams * width, width)[:, None]
    return np.where(later, free.take(firsts + later.cumsum(1) - 1, mode="clip"), parents)


@functools.cache
def _earlier(width: int) -> npt.NDArray[np.bool_]:
    """[child, other]: whether the other comes before."""
    return np.tri(width, k=-1, dtype=bool)


def best_of_beams(
    beams: Sequence[list[int]], sums: Sums, ids: Ints, log_probs: Floats, count: int
) -> Iterator[Iterator[Choice]]:
    """For each beam, given as its rows, its best `count` candidates in the order (-total, row of the beam, rank).

    `sums` are [rows], `ids` and `log_probs` [rows, k]; of each row the first `count` candidates take part.
    """
    rows, live = _padded(beams)  # [beams, width]
    k = min(count, ids.shape[1])
    totals = np.where(live, sums[rows], -np.inf)  # float64 [beams, width]
    totals = totals[:, :, None] + log_probs[rows, :k]  # [beams, width, k]
    totals = totals.reshape(len(beams), -1)  # [beams, width * k]
    order = np.argsort(-totals, axis=1, kind="stable")[:, :count]  # [beams, count]
    parents = np.take_along_axis(rows, order // k, axis=1)  # [beams, count]
    columns = (
        parents.tolist(),
        ids[parents, order % k].tolist(),
        log_probs[parents, order % k].tolist(),
        np.take_along_axis(totals, order, axis=1).tolist(),
    )
    return (map(Choice, *of_beam) for of_beam in zip(*columns, strict=True))


def _padded(lists: Sequence[list[int]]) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """Ragged lists as one array [lists, longest], and where it is real."""
    longest = max(map(len, lists))
    padded = np.array([rows + rows[:1] * (longest - len(rows)) for rows in lists])
    live = np.arange(longest) < np.array([[len(rows)] for rows in lists])
    return padded, live
