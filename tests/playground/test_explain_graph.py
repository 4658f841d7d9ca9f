"""The explain graph against torch, against the graphs that serve, and against its own weights."""

import math
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from onnx import numpy_helper

from dragoman.export.builder import WeightFile
from dragoman.export.explain_graph import explain_graph
from dragoman.export.graphs import build_graphs, decoder_graph, encoder_graph
from dragoman.export.operators import FloatOperators
from dragoman.export.trained_network import network_arrays
from dragoman.model.saved import SavedModel
from dragoman.model.tokenizer import BOS_ID, EOS_ID
from dragoman.model.transformer import Transformer, attention_weights, causal_mask
from dragoman.service.bundles.manifest import EXPLAIN, WEIGHTS, Bundle, Limits, Precision
from tests.conftest import random_network, tiny_config

LIMITS = Limits(max_source_tokens=48, max_new_tokens=40)
SOURCE, TARGET = (17, 250, 31, 99, 17, 402, EOS_ID), (60, 61, 333, 12, 90, EOS_ID)
MAPS = ("encoder_attention", "decoder_attention", "cross_attention")
Outputs = dict[str, np.ndarray]


def run(session: ort.InferenceSession, source: tuple[int, ...] = SOURCE, target: tuple[int, ...] = TARGET) -> Outputs:
    feeds = {
        "source": np.array([source]),
        "target": np.array([(BOS_ID, *target[:-1])]),
        "labels": np.array(target)[:, None],
        "k": np.array([5]),
    }
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds), strict=True))


def open_session(path: Path) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def explain_with(network: Transformer, folder: Path) -> Outputs:
    graphs = build_graphs(FloatOperators(network_arrays(network), "float32"), LIMITS)
    (folder / EXPLAIN).write_bytes(graphs.explain.SerializeToString())
    (folder / WEIGHTS).write_bytes(graphs.weights)
    return run(open_session(folder / EXPLAIN))


@torch.inference_mode()
def torch_maps(network: Transformer, source: tuple[int, ...], target: tuple[int, ...]) -> Outputs:
    """Attention of every layer and head as the network's own modules compute it, [layers, heads, rows, columns]."""
    maps: dict[str, list[torch.Tensor]] = {name: [] for name in MAPS}
    x = network.embed(torch.tensor([source]))
    for i in range(network.encoder.depth):
        layer = network.encoder.layers[i % len(network.encoder.layers)]
        query, key, _ = layer.self_attention.heads(layer.before(layer.self_attention_norm, x))
        maps["encoder_attention"].append(attention_weights(query, key))
        x = layer(x, None)
    memory = x if network.encoder.norm is None else network.encoder.norm(x)
    x = network.embed(torch.tensor([(BOS_ID, *target[:-1])]))
    for i in range(network.decoder.depth):
        layer = network.decoder.layers[i % len(network.decoder.layers)]
        taken = layer.before(layer.self_attention_norm, x)
        query, key, _ = layer.self_attention.heads(taken)
        maps["decoder_attention"].append(attention_weights(query, key, causal_mask(x.shape[1])))
        after = layer.after(layer.self_attention_norm, x, layer.self_attention(taken, None, causal=True))
        query = layer.cross_attention.query_heads(layer.before(layer.cross_attention_norm, after))
        key, _ = layer.cross_attention.key_value_heads(memory)
        maps["cross_attention"].append(attention_weights(query, key))
        x = layer(x, memory, None)
    return {name: torch.cat(found).numpy() for name, found in maps.items()}


VARIANTS = [
    {},
    {"norm": "post"},
    {"share_layers": True, "encoder_layers": 3},
    {"positions": "learned"},
]


@pytest.mark.parametrize("changes", VARIANTS, ids=str)
def test_attention_is_torchs(changes: dict[str, object], tmp_path: Path) -> None:
    """What the page shows is what the network computes, in every variant that can be trained."""
    network = random_network(tiny_config(**changes))
    explained, expected = explain_with(network, tmp_path), torch_maps(network, SOURCE, TARGET)
    for name in MAPS:
        assert explained[name].shape == expected[name].shape
        assert np.abs(explained[name] - expected[name]).max() < 1e-4, name


def test_cross_attention_of_an_exported_bundle_is_the_checkpoints(
    tiny_saved: SavedModel, tiny_float_bundles: dict[Precision, Bundle]
) -> None:
    """The issue's own bound, on files that were really written: 1e-3 in fp32."""
    explained = run(open_session(tiny_float_bundles["fp32"].file(EXPLAIN)))
    expected = torch_maps(tiny_saved.network, SOURCE, TARGET)["cross_attention"]
    assert np.abs(explained["cross_attention"] - expected).max() < 1e-3


@pytest.mark.parametrize("precision", ["int8", "fp32", "fp16"])
def test_rows_of_every_attention_map_sum_to_one(
    precision: Precision, tiny_bundle: Bundle, tiny_float_bundles: dict[Precision, Bundle]
) -> None:
    """A share of attention is a share only if all of them make one."""
    bundle = tiny_bundle if precision == "int8" else tiny_float_bundles[precision]
    explained = run(open_session(bundle.file(EXPLAIN)))
    for name in MAPS:
        assert np.abs(explained[name].sum(-1) - 1).max() < 1e-5, name
    future = np.triu(np.ones((len(TARGET), len(TARGET)), bool), 1)
    assert (explained["decoder_attention"][..., future] == 0).all()


def test_explaining_adds_no_weights() -> None:
    """The promise about its cost: the file grows by the graph alone."""
    operators = FloatOperators(network_arrays(random_network(tiny_config())), "float32")
    serving = WeightFile()
    encoder_graph(operators, LIMITS, serving)
    decoder_graph(operators, LIMITS, serving)
    before = serving.to_bytes()
    explain_graph(operators, LIMITS, serving)
    assert serving.to_bytes() == before


def test_int8_explains_with_the_weights_that_serve(tiny_bundle: Bundle) -> None:
    """An int8 bundle holds no second, float copy of its network."""
    names = [tiny_bundle.file(name) for name in ("encoder.onnx", "decoder.onnx")]
    serving = set().union(*(places(onnx.load(str(name), load_external_data=False)) for name in names))
    assert places(onnx.load(str(tiny_bundle.file(EXPLAIN)), load_external_data=False)) <= serving


def places(model: onnx.ModelProto) -> set[tuple[str, str]]:
    found = set()
    for tensor in model.graph.initializer:
        where = {entry.key: entry.value for entry in tensor.external_data}
        if where:
            found.add((where["offset"], where["length"]))
    return found


class Weights:
    """A bundle's tensors by name, and the linear layers of its explain graph in NumPy, rounded as it rounds."""

    def __init__(self, bundle: Bundle) -> None:
        model = onnx.load(str(bundle.file(EXPLAIN)))
        self.arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
        self.table = next((node for node in model.graph.node if node.op_type == "DequantizeLinear"), None)
        self.products = {node.input[1]: node for node in model.graph.node if node.op_type == "MatMulIntegerToFloat"}

    def embed(self, ids: tuple[int, ...], d_model: int) -> np.ndarray:
        rows = np.array(ids)
        if "embedding" in self.arrays:  # integers, whose scale holds sqrt(d)
            return self.arrays["embedding"][rows] * self.arrays[self.table.input[1]]
        return self.arrays["embedding.weight"][rows] * np.float32(math.sqrt(d_model))

    def norm(self, name: str, x: np.ndarray) -> np.ndarray:
        centred = x - x.mean(-1, keepdims=True)
        normal = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
        return normal * self.arrays[f"{name}.weight"] + self.arrays[f"{name}.bias"]

    def linear(self, name: str, x: np.ndarray, part: str = "") -> np.ndarray:
        weight, bias = self.arrays[f"{name}.weight{part}"], self.arrays[f"{name}.bias{part}"]
        if weight.dtype == np.float32:
            return x @ weight + bias
        product = self.products[f"{name}.weight{part}"]
        scale, zero = self.arrays[product.input[2]], int(self.arrays[product.input[4]])
        rounded = np.clip(np.rint(x / scale) + zero, 0, 255) - zero
        return rounded @ weight.astype(np.float64) * scale * self.arrays[product.input[3]] + bias


def softmax(x: np.ndarray) -> np.ndarray:
    shares = np.exp(x - x.max(-1, keepdims=True))
    return shares / shares.sum(-1, keepdims=True)


def heads(x: np.ndarray, count: int) -> np.ndarray:
    return x.reshape(len(x), count, -1).swapaxes(0, 1)  # [H, T, dh]


@pytest.mark.parametrize("precision", ["int8", "fp32"])
def test_the_numbers_of_the_learn_page_recompute_from_the_bundle(
    precision: Precision, tiny_bundle: Bundle, tiny_float_bundles: dict[Precision, Bundle]
) -> None:
    """Every step that the page writes out, from its inputs and the bundle's own tensors, in NumPy: to 1e-4."""
    bundle = tiny_bundle if precision == "int8" else tiny_float_bundles[precision]
    shape, weights, got = bundle.architecture, Weights(bundle), run(open_session(bundle.file(EXPLAIN)))
    count, root, first = shape.num_heads, math.sqrt(shape.d_model / shape.num_heads), "encoder.layers.0.self_attention"

    def same(name: str, expected: np.ndarray, layer: int | None = 0) -> None:
        found = got[name] if layer is None else got[name][layer]
        assert np.abs(found - expected).max() < 1e-4, name

    same("source_embedding", weights.embed(SOURCE, shape.d_model))
    same("source_position", weights.arrays["positions.weight"][: len(SOURCE)], None)
    same("encoder_in", got["source_embedding"][0] + got["source_position"])
    normed = weights.norm(f"{first}_norm", got["encoder_in"][0])
    same("encoder_normed", normed)
    for part, name in enumerate(("query", "key", "value")):
        same(f"encoder_{name}", heads(weights.linear(f"{first}.qkv", got["encoder_normed"][0], f".{part}"), count))
    same("encoder_scores", got["encoder_query"][0] @ got["encoder_key"][0].swapaxes(1, 2) / root)
    same("encoder_attention", softmax(got["encoder_scores"][0]))
    same("encoder_mixed", got["encoder_attention"][0] @ got["encoder_value"][0])
    joined = got["encoder_mixed"][0].swapaxes(0, 1).reshape(len(SOURCE), -1)
    same("encoder_change", weights.linear(f"{first}.out", joined))
    same("encoder_after", got["encoder_in"][0] + got["encoder_change"][0])
    same("cross_scores", got["cross_query"][0] @ got["cross_key"][0].swapaxes(1, 2) / root)
    same("cross_attention", softmax(got["cross_scores"][0]))
    same("cross_mixed", got["cross_attention"][0] @ got["cross_value"][0])
    same("log_probs", got["logits"] - got["log_sum_exp"][:, None], None)
