"""The best candidates of beams, and who goes on where: for all beams of one width at once.

What becomes of a candidate is left to `search`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dragoman.service.engine.rows import Floats, Ints

Sums = npt.NDArray[np.float64]


class Choice(NamedTuple):
    """One way for a beam to go on."""

    parent: int  # the row that goes on
    token: int
    log_prob: float
    total: float  # of the row's log-probabilities and this one; minus infinity where there is no choice


class Branches(NamedTuple):
    """How full beams go on: as many children as they have rows, each in a row of its own beam."""

    rows: Ints  # [beams, width], the children's, best first
    parents: Ints  # [beams, width]
    tokens: Ints  # [beams, width]
    log_probs: Floats  # [beams, width]
    ended: list[tuple[int, Choice]]  # the number of the beam, and a candidate that ends among the best `width`


def branch_full(beams: Sequence[list[int]], sums: Sums, ids: Ints, log_probs: Floats, eos_id: int) -> Branches | None:
    """All beams have `width` rows; None where some beam lacks candidates, which is for `best_of_beams` to sort out.

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
    places = _places(parents.take(going))
    return Branches(rows.take(firsts + places), of_parents.take(going), tokens.take(going), chosen.take(going), ended)


def _places(parents: Ints) -> Ints:
    """[beams, width] -> the first child of a place stays there, the others take what is free, in order."""
    num_beams, width = parents.shape
    same = parents[:, :, None] == parents[:, None, :]  # [beams, child, child]
    later = (same & _earlier(width)).any(2)  # [beams, width]: an earlier child has the same parent
    used = (parents[:, :, None] == np.arange(width)).any(1)  # [beams, place]
    free = np.argsort(used, axis=1, kind="stable")  # [beams, width], free places first
    firsts = np.arange(0, num_beams * width, width)[:, None]
    return np.where(later, free.take(firsts + later.cumsum(1) - 1, mode="clip"), parents)


@functools.cache
def _earlier(width: int) -> npt.NDArray[np.bool_]:
    """[child, other]: whether the other comes before."""
    return np.tri(width, k=-1, dtype=bool)


def best_of_beams(
    beams: Sequence[list[int]], sums: Sums, ids: Ints, log_probs: Floats, count: int
) -> Iterator[Iterator[Choice]]:
    """For each beam, given as its rows, its best `count` candidates in the order (-total, place in the beam, rank).

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
