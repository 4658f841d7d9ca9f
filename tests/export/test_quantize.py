"""Static int8: integers that no processor saturates, scales that fit, and every point calibrated."""

import numpy as np
import pytest

from export.calibrate import observe
from export.network import network_arrays
from export.operators import Int8Operators
from export.quantize import activation_scale, quantize, quantize_weight
from model.tokenizer import EOS_ID
from service.bundles.manifest import Limits
from tests.conftest import random_network, tiny_config

SOURCES = [[5, 9, 30, EOS_ID], [7, EOS_ID], [11, 12, 13, 14, 15, 16, EOS_ID]]
TARGETS = [[20, 21], [], [40, 41, 42, 43]]


def samples_of(**variant: object) -> tuple:
    network = random_network(tiny_config(**variant))
    return network_arrays(network), observe(network, zip(SOURCES, TARGETS, strict=True))


def test_weights_fit_seven_bits() -> None:
    """Two products of unsigned 8 and signed 7 bits fit into 16 bits: AVX2 must not saturate where VNNI does not."""
    weight = np.random.default_rng(0).standard_normal((64, 48)).astype(np.float32)
    found = quantize_weight(weight)
    assert np.abs(found.integers).max() <= 63
    assert 2 * 255 * int(np.abs(found.integers).max()) < 2**15
    assert np.abs(found.integers * found.scale - weight).max() <= found.scale.max() / 2 * 1.001


def test_a_column_of_zeros_stays_zero() -> None:
    """A dead unit must not become a division by zero."""
    weight = np.zeros((4, 2), np.float32)
    weight[:, 1] = 1
    found = quantize_weight(weight)
    np.testing.assert_array_equal(found.integers[:, 0], 0)
    assert np.isfinite(found.scale).all()


def test_rare_outliers_are_clipped_when_that_loses_less() -> None:
    """One value of a hundred thousand must not cost all others half of their bits."""
    values = np.random.default_rng(0).standard_normal((5000, 40)).astype(np.float32)
    assert activation_scale(values, is_relu=False) * 127 == pytest.approx(np.abs(values).max(), rel=0.2)
    values[0, 0] = 40
    assert activation_scale(values, is_relu=False) * 127 < 25


def test_an_activation_that_is_always_zero_has_a_scale() -> None:
    """Dead or unused, it must not stop the export."""
    assert activation_scale(np.zeros((10, 4), np.float32), is_relu=True) > 0


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
    assert {tensor.kind for tensor in operators.state()} == {"self", "cross", "last"}
