"""The best candidates of beams: the order that beam search walks them in, for all beams of one width at once.

What becomes of a candidate is left to `search`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from service.engine.rows import Floats, Ints


class Choice(NamedTuple):
    """One way for a beam to go on."""

    parent: int  # the row that goes on
    token: int
    log_prob: float
    total: float  # of the row's log-probabilities and this one; minus infinity where there is no choice


def best_of_beams(
    beams: Sequence[list[int]], sums: npt.NDArray[np.float64], ids: Ints, log_probs: Floats, count: int
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
