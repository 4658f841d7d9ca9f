"""How large the batch is that translates a file: more rows than a server's, because nobody waits for a step to end.

Rows share the cost of a step, in the runtime and in Python; but their caches must stay near the processor, or attention
waits for memory. `dragoman.service.commands.translate` and the benchmarks ask here.
"""

import math
from typing import NamedTuple

from dragoman.service.bundles.manifest import Bundle

_GREEDY = 128, 1024  # rows, and source tokens of all of them: fewer rows where sentences are long
_GREEDY_OF_LARGE = 64, math.inf  # its weights are read anew at every step, which few rows do not pay for
_BEAM = 192, 1536  # on few beams Python spends nearly as long as on many
_LARGE = 16_384  # bytes that a row's caches grow by with a token


class FileBatch(NamedTuple):
    """Of each decode loop."""

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
