"""Pure NumPy: candidates -> next tokens, finished hypotheses, rows to keep."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt


class Candidates(NamedTuple):
    """What a runner's step returns, best first; ties by lower id."""

    ids: npt.NDArray[np.int64]  # [rows, k]
    log_probs: npt.NDArray[np.float32]  # [rows, k]
    wanted_log_probs: npt.NDArray[np.float32] | None = None  # [rows], of the tokens the step was asked about
