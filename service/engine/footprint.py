"""What a loaded bundle takes of memory, estimated before it is loaded: its weights as the runtime keeps them, and state
arrays.

Each graph packs the weights that it multiplies by into an order of its own, so a graph of the decoder and the
multi-step graph each have a copy. The explain graph is another, once somebody explains or sends tags. The arrays of
state are known to the byte. `bench/LOG.md` has the measurements that `WEIGHT_COPIES` comes from.
"""

from math import prod

from dragoman.service.bundles.manifest import WEIGHTS, Bundle

WEIGHT_COPIES = 2.5  # of weights.bin, in all graphs together
OVERHEAD_BYTES = 4 * 1024 * 1024  # graphs, tokenizer, threads, the runtime's own
_ITEM_BYTES = {"float32": 4, "float16": 2}


def estimated_bytes(bundle: Bundle, max_rows: int, num_loops: int) -> int:
    weights = bundle.files[WEIGHTS].bytes if WEIGHTS in bundle.files else 0
    return round(WEIGHT_COPIES * weights) + OVERHEAD_BYTES + num_loops * state_bytes(bundle, max_rows)


def state_bytes(bundle: Bundle, max_rows: int) -> int:
    """The arrays of one decode loop; those that a step replaces are there twice."""
    limits = bundle.limits
    sizes = {"rows": max_rows, "source": limits.max_source_tokens, "target": limits.max_new_tokens}
    return sum(
        prod(sizes[size] if isinstance(size, str) else size for size in tensor.shape)
        * _ITEM_BYTES[tensor.dtype]
        * (2 if tensor.kind == "replaced" else 1)
        for tensor in bundle.state
    )
