"""Static int8: the scale with which every activation and every weight is rounded.

Each tensor has one scale. A scale per output would cost a sixth of a one-row step, because the runtime multiplies the
scales at every call. Instead, the units of a feed-forward layer are resized so that one scale fits all of them: a ReLU
allows that. Products of an unsigned activation and a signed weight stay below 2^14 (8 + 7 or 7 + 8 bits), so that the
16-bit sums of older processors cannot overflow and all processors compute the same integers. `export.calibrate` records
the values; `export.operators` uses the scales.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from dragoman.export.network import Floats, Network, Samples
from dragoman.export.operators import Activation, Quantization, QuantizedWeight

WEIGHT_LEVELS = 63  # on either side of zero: 7 bits, against activations of 8
TABLE_LEVELS = 127  # the embedding is 8 bits, because its rows differ most; its activation is 7
_MAX_VALUES = 200_000  # of a point, that its scale is chosen by
_SHRINKAGES = np.linspace(1.0, 0.3, 71)


def quantize(network: Network, samples: Samples) -> tuple[Network, Quantization]:
    """The network that int8 runs, which computes the same function, and its integers and scales."""
    is_relu = network.architecture.activation == "relu"
    if is_relu:
        network, samples = equalize(network, samples)
    activations = {point: choose_activation(point, values, is_relu) for point, values in samples.items()}
    weights = {name: quantize_weight(array, WEIGHT_LEVELS) for name, array in _linear_weights(network)}
    for name in {network.table("source"), network.table("target"), network.output_table}:
        weights[name] = quantize_weight(network.arrays[name], TABLE_LEVELS)
    return network, Quantization(weights, activations)


def equalize(network: Network, samples: Samples) -> tuple[Network, Samples]:
    """Give all hidden units of a feed-forward layer weights of the same size.

    relu(x / s) s = relu(x): a unit's size may move from the matrix before the ReLU to the one after it.
    """
    arrays, seen, sizes = dict(network.arrays), dict(samples), dict[str, Floats]()
    for side in ("encoder", "decoder"):
        for i in range(network.depth(side)):
            name = f"{network.layer(side, i)}.feed_forward"
            if name not in sizes:  # a shared layer is resized once
                sizes[name] = _unit_sizes(arrays[f"{name}.up.weight"])
                arrays[f"{name}.up.weight"] = arrays[f"{name}.up.weight"] / sizes[name]
                arrays[f"{name}.up.bias"] = arrays[f"{name}.up.bias"] / sizes[name]
                arrays[f"{name}.down.weight"] = arrays[f"{name}.down.weight"] * sizes[name][:, None]
            point = f"{side}.layers.{i}.feed_forward.down"
            seen[point] = seen[point] / sizes[name]
    return replace(network, arrays=arrays), seen


def _unit_sizes(weight: Floats) -> Floats:
    """The largest weight of each output, [ff], relative to their mean, so that activations keep their range."""
    sizes = np.maximum(np.abs(weight).max(0), np.float32(1e-6))
    return np.asarray(sizes / np.exp(np.log(sizes).mean()), np.float32)


def _linear_weights(network: Network) -> Iterator[tuple[str, Floats]]:
    for name, array in network.arrays.items():
        if array.ndim == 2 and name != "positions.weight" and not name.endswith(("embedding.weight", "output.weight")):
            yield name, array


def choose_activation(point: str, values: Floats, is_relu: bool = True) -> Activation:
    """Unsigned 8 bits; after a ReLU all levels are above zero; the input of the 8-bit embedding has 7 bits."""
    low, high = (
        (0, 255) if is_relu and point.endswith("feed_forward.down") else (-64, 63) if point == "logits" else (-128, 127)
    )
    return Activation(best_scale(values, low, high), -low)


def best_scale(values: Floats, low: int, high: int) -> float:
    """The scale with the least squared error: clipping rare large values makes the steps for all others finer."""
    flat = values.ravel()
    flat = flat[:: -(-len(flat) // _MAX_VALUES)]
    if low == 0:
        flat = np.maximum(flat, 0)
    scales = (float(np.abs(values).max()) or 1.0) * _SHRINKAGES / high
    errors = [_rounding_error(flat, scale, low, high) for scale in scales]
    # Four digits: another machine may sum in another order, and must get the same bundle.
    return float(np.float32(f"{scales[int(np.argmin(errors))]:.4g}"))


def _rounding_error(values: Floats, scale: float, low: int, high: int) -> float:
    rounded = np.clip(np.rint(values / np.float32(scale)), low, high) * np.float32(scale)
    return float(np.square(rounded - values, dtype=np.float64).sum())


def quantize_weight(weight: Floats, levels: int) -> QuantizedWeight:
    scale = best_scale(weight, -levels, levels)
    integers = np.clip(np.rint(weight / np.float32(scale)), -levels, levels).astype(np.int8)
    return QuantizedWeight(integers, scale)
