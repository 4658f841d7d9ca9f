"""The size of the batch that translates a file: more rows than a server's, because nobody waits for a single step.

Rows share the cost of a step, in the runtime and in Python. But their caches must stay small enough for the processor's
own cache, or attention waits for memory.
"""

import math
from typing import NamedTuple

from dragoman.service.bundles.manifest import Bundle

_GREEDY = 128, 1024  # rows, and source tokens of all of them: fewer rows where sentences are long
_GREEDY_OF_LARGE = 64, math.inf  # all weights are read at every step, whatever the number of rows
_BEAM = 192, 1536  # Python takes nearly as long for few beams as for many
_LARGE = 16_384  # bytes that each token adds to the caches of a row


class FileBatch(NamedTuple):
    """The batch of each decode loop: rows, and source tokens of all rows."""

    rows: int
    tokens: float


def batch_for(bundle: Bundle, beam_size: int) -> FileBatch:
    if beam_size > 1:
        return FileBatch(*_BEAM)
    return FileBatch(*(_GREEDY if _bytes_a_token(bundle) <= _LARGE else _GREEDY_OF_LARGE))


def _bytes_a_token(bundle: Bundle) -> int:
    caches = [tensor for tensor in bundle.state if {"source", "target"} & set(tensor.shape)]
    sizes = [math.prod(size for size in tensor.shape if isinstance(size, int)) for tensor in caches]
    return sum(size * (4 if tensor.dtype == "float32" else 2) for size, tensor in zip(sizes, caches, strict=True))
