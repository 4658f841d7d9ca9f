"""Static int8: integers that no processor saturates, scales that fit, and every point calibrated."""

import numpy as np
import pytest

from dragoman.export.calibrate import observe
from dragoman.export.operators import Int8Operators
from dragoman.export.quantize import best_scale, choose_activation, equalize, quantize, quantize_weight
from dragoman.export.trained_network import network_arrays
from dragoman.model.tokenizer import EOS_ID
from dragoman.service.bundles.manifest import Limits
from tests.conftest import random_network, tiny_config

SOURCES = [[5, 9, 30, EOS_ID], [7, EOS_ID], [11, 12, 13, 14, 15, 16, EOS_ID]]
TARGETS = [[20, 21], [], [40, 41, 42, 43]]


def samples_of(**variant: object) -> tuple:
    network = random_network(tiny_config(**variant))
    return network_arrays(network), observe(network, zip(SOURCES, TARGETS, strict=True))


@pytest.mark.parametrize("levels", [63, 127])
def test_weights_are_rounded_to_the_nearest_level(levels: int) -> None:
    """What is lost is half a level, unless clipping a rare weight is worth it."""
    weight = np.random.default_rng(0).uniform(-1, 1, (64, 48)).astype(np.float32)
    found = quantize_weight(weight, levels)
    assert np.abs(found.integers).max() == levels
    assert np.abs(found.integers * found.scale - weight).max() <= found.scale / 2 * 1.5


def test_no_pair_of_products_overflows_sixteen_bits() -> None:
    """AVX2 adds two products in 16 bits and saturates; VNNI does not. They must see the same sums."""
    _, quantization = quantize(*samples_of())
    for point, activation in quantization.activations.items():
        largest = 127 if activation.zero_point == 64 else 255
        names = ["embedding.weight"] if point == "logits" else [f"{point}.weight"]
        names = ["decoder.layers.0.cross_attention.kv.weight"] if point == "memory" else names
        for name in names:
            assert 2 * largest * int(np.abs(quantization.weights[name].integers).max()) < 2**15


def test_a_matrix_of_zeros_stays_zero() -> None:
    """A dead layer must not become a division by zero."""
    found = quantize_weight(np.zeros((4, 2), np.float32), 63)
    np.testing.assert_array_equal(found.integers, 0)
    assert found.scale > 0


def test_rare_outliers_are_clipped_when_that_loses_less() -> None:
    """One value of a hundred thousand must not cost all others half of their bits."""
    values = np.random.default_rng(0).standard_normal((5000, 40)).astype(np.float32)
    assert best_scale(values, -128, 127) * 127 == pytest.approx(np.abs(values).max(), rel=0.2)
    values[0, 0] = 40
    assert best_scale(values, -128, 127) * 127 < 25


def test_after_a_relu_all_levels_are_above_zero() -> None:
    """Rounding to unsigned integers is the ReLU itself, and no level is spent on what it removes."""
    values = np.random.default_rng(0).standard_normal((500, 40)).astype(np.float32)
    plain, after_relu = (choose_activation(point, values) for point in ("x.feed_forward.up", "x.feed_forward.down"))
    assert (plain.zero_point, after_relu.zero_point) == (128, 0)
    assert after_relu.scale < 0.6 * plain.scale


def test_an_activation_that_is_always_zero_has_a_scale() -> None:
    """Dead or unused, it must not stop the export."""
    assert choose_activation("x", np.zeros((10, 4), np.float32)).scale > 0


@pytest.mark.parametrize("variant", [{}, {"share_layers": True, "encoder_layers": 3}], ids=str)
def test_equalizing_does_not_change_the_function(variant: dict) -> None:
    """Sizes only move from one matrix to the next: the same network, with weights of one size."""
    network, samples = samples_of(**variant)
    equal, seen = equalize(network, samples)
    for i in range(network.architecture.encoder_layers):
        name, point = f"{network.layer('encoder', i)}.feed_forward", f"encoder.layers.{i}.feed_forward"
        x = samples[f"{point}.up"]
        before, after = (feed_forward(arrays, name, x) for arrays in (network.arrays, equal.arrays))
        np.testing.assert_allclose(after, before, atol=1e-4)
        hidden = np.maximum(x @ equal.arrays[f"{name}.up.weight"] + equal.arrays[f"{name}.up.bias"], 0)
        np.testing.assert_allclose(seen[f"{point}.down"], hidden, atol=1e-4)
        sizes = np.abs(equal.arrays[f"{name}.up.weight"]).max(0)
        np.testing.assert_allclose(sizes, sizes[0], rtol=1e-5)


def feed_forward(arrays: dict, name: str, x: np.ndarray) -> np.ndarray:
    hidden = np.maximum(x @ arrays[f"{name}.up.weight"] + arrays[f"{name}.up.bias"], 0)
    return hidden @ arrays[f"{name}.down.weight"]


@pytest.mark.parametrize("variant", [{}, {"norm": "post"}, {"share_layers": True, "encoder_layers": 3}], ids=str)
def test_every_point_of_the_graphs_is_calibrated(variant: dict) -> None:
    """Shared layers have the same weights in every place, but not the same activations."""
    network, samples = samples_of(**variant)
    layers = network.architecture.encoder_layers
    assert {f"encoder.layers.{i}.feed_forward.down" for i in range(layers)} <= set(samples)
    assert len(samples) == 4 * layers + 6 * network.architecture.decoder_layers + 2
    assert samples["memory"].shape == (sum(map(len, SOURCES)), 32)
    assert samples["logits"].shape == (sum(len(target) + 1 for target in TARGETS), 32)  # bos and the tokens


def test_observation_leaves_the_network_as_it_was() -> None:
    """Hooks that stay would slow down, and remember, everything that comes after."""
    network = random_network(tiny_config())
    observe(network, zip(SOURCES, TARGETS, strict=True))
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in network.modules())


def test_the_embedding_is_one_int8_table() -> None:
    """It is the largest weight; source, target and output read the same bytes."""
    network, samples = samples_of()
    _, quantization = quantize(network, samples)
    assert quantization.weights["embedding.weight"].integers.shape == (480, 32)
    operators = Int8Operators(*quantize(network, samples), Limits(24, 20))
    assert {tensor.kind for tensor in operators.state()} == {"grows", "encoded"}
