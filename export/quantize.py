"""Static int8: which scale every activation and every weight is rounded with.

Activations get one scale each, weights one per output in 7 bits: products of unsigned 8 and signed 7 bits cannot
overflow the 16-bit sums of older processors, so that all of them compute the same integers. What flows through the
network is seen by `export.calibrate`; the operators that use the scales are `export.operators`.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from export.calibrate import Samples
from export.network import Floats, Network
from export.operators import Quantization, QuantizedWeight

WEIGHT_LEVELS = 63  # on either side of zero
_MAX_VALUES = 200_000  # of a point, to choose its scale by
_SHRINKAGES = np.linspace(1.0, 0.3, 71)


def quantize(network: Network, samples: Samples) -> tuple[Network, Quantization]:
    """The network as int8 runs it (biases corrected for what rounding shifts), and the integers and scales."""
    scales = {point: activation_scale(values, is_relu=_is_relu(point)) for point, values in samples.items()}
    weights = {name: quantize_weight(array) for name, array in linear_weights(network)}
    weights["embedding.weight"] = quantize_embedding(network.arrays["embedding.weight"])
    return network, Quantization(weights, scales)


def _is_relu(point: str) -> bool:
    return point.endswith("feed_forward.down")


def linear_weights(network: Network) -> Iterator[tuple[str, Floats]]:
    for name, array in network.arrays.items():
        if array.ndim == 2 and name not in ("embedding.weight", "positions.weight"):
            yield name, array


def activation_scale(values: Floats, is_relu: bool) -> float:
    """The scale that loses least in the mean of squares: clipping rare large values makes all others finer."""
    flat = values.ravel()
    flat = flat[:: -(-len(flat) // _MAX_VALUES)]
    low, high = (0, 255) if is_relu else (-128, 127)
    largest = float(np.abs(values).max()) or 1.0
    clips = largest * _SHRINKAGES
    errors = [_rounding_error(flat, clip / high, low, high) for clip in clips]
    return float(np.float32(clips[int(np.argmin(errors))] / high))


def _rounding_error(values: Floats, scale: float, low: int, high: int) -> float:
    rounded = np.clip(np.rint(values / np.float32(scale)), low, high) * np.float32(scale)
    return float(np.square(rounded - values, dtype=np.float64).sum())


def quantize_weight(weight: Floats) -> QuantizedWeight:
    """[in, out]: one scale per output."""
    scale = (np.abs(weight).max(0) / WEIGHT_LEVELS).astype(np.float32)
    return QuantizedWeight(_to_integers(weight, scale), scale)


def quantize_embedding(table: Floats) -> QuantizedWeight:
    """[V, d]: one scale per token, which is an output of the last product and a row on the way in."""
    scale = (np.abs(table).max(1) / WEIGHT_LEVELS).astype(np.float32)
    return QuantizedWeight(_to_integers(table, scale[:, None]), scale)


def _to_integers(weight: Floats, scale: Floats) -> npt.NDArray[np.int8]:
    safe = np.where(scale == 0, np.float32(1), scale)
    return np.clip(np.rint(weight / safe), -WEIGHT_LEVELS, WEIGHT_LEVELS).astype(np.int8)
