"""The graphs are the network: every variant of it, token for token, in standard operators where that is promised."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from dragoman.export.builder import GraphBuilder, WeightFile
from dragoman.export.calibrate import observe
from dragoman.export.graphs import Graphs, _best_tokens, build_graphs
from dragoman.export.operators import FloatOperators, Int8Operators, Operators
from dragoman.export.plain_search import GraphDecoder
from dragoman.export.quantize import quantize
from dragoman.export.trained_network import network_arrays
from dragoman.model.evaluate import beam, greedy
from dragoman.model.tokenizer import EOS_ID
from dragoman.model.transformer import Transformer
from dragoman.service.bundles.manifest import Limits
from tests.conftest import random_network, tiny_config

LIMITS = Limits(max_source_tokens=24, max_new_tokens=20)
VARIANTS = [
    {"norm": "pre", "positions": "sinusoidal"},
    {"norm": "post", "positions": "sinusoidal"},
    {"norm": "pre", "positions": "learned"},
    {"norm": "post", "positions": "learned", "num_heads": 4, "encoder_layers": 1, "decoder_layers": 3},
    {"norm": "pre", "share_layers": True, "encoder_layers": 3, "decoder_layers": 2},
    {"norm": "post", "share_layers": True, "vocab_size": 101},
]


def write_graphs(network: Transformer, folder: Path, operators: Operators | None = None) -> tuple[GraphDecoder, Graphs]:
    graphs = build_graphs(operators or FloatOperators(network_arrays(network), "float32"), LIMITS)
    for name in ("encoder", "decoder"):
        (folder / f"{name}.onnx").write_bytes(getattr(graphs, name).SerializeToString(deterministic=True))
    (folder / "weights.bin").write_bytes(graphs.weights)
    return GraphDecoder(folder, graphs.state, LIMITS), graphs


def random_sources(count: int, vocab_size: int, seed: int = 0) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [[*rng.integers(4, vocab_size, rng.integers(0, 23)).tolist(), EOS_ID] for _ in range(count)]


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_every_variant_decodes_like_torch_greedy_and_beam(variant: dict, tmp_path: Path) -> None:
    """A norm in the wrong place or a shared layer's wrong weights would still give fluent tokens: only parity shows."""
    network = random_network(tiny_config(**variant))
    decoder, _ = write_graphs(network, tmp_path)
    sources = random_sources(6, network.config.vocab_size)
    limits = [min(20, 2 * len(source)) for source in sources]
    ours = [trace.hypothesis() for trace in decoder.greedy(sources, limits)]
    theirs = greedy(network, sources, limits)
    assert [h.ids for h in ours] == [h.ids for h in theirs]
    assert [h.finished for h in ours] == [h.finished for h in theirs]
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine.log_probs, other.log_probs, atol=2e-5)
    for source, limit, wanted in zip(sources[:3], limits, beam(network, sources[:3], limits[:3]), strict=False):
        found = decoder.beam(source, limit, 4).hypotheses
        assert [h.ids for h in found] == [h.ids for h in wanted]
        np.testing.assert_allclose([h.score for h in found], [h.score for h in wanted], atol=2e-5)


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_every_variant_is_nearly_the_same_in_int8_and_the_same_bits_in_a_crowd(variant: dict, tmp_path: Path) -> None:
    """Rounding costs a little precision; a wrong scale, point or operator would cost a lot."""
    network = random_network(tiny_config(**variant))
    sources = random_sources(8, network.config.vocab_size, seed=1)
    limits = [6] * 8
    theirs = greedy(network, sources, limits)
    samples = observe(network, [(source, h.ids) for source, h in zip(sources, theirs, strict=True)])
    decoder, _ = write_graphs(network, tmp_path, Int8Operators(*quantize(network_arrays(network), samples), LIMITS))
    together = decoder.greedy(sources, limits, k=1)
    errors = [abs(a.log_probs[0] - b.log_probs[0]) for a, b in zip(together, theirs, strict=True)]
    assert np.median(errors) < 0.15
    for source, crowded in zip(sources, together, strict=True):
        alone = decoder.greedy([source], [6])[0]
        assert (alone.ids, alone.log_probs) == (crowded.ids, crowded.log_probs)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_float_graphs_use_standard_operators_only(dtype: str) -> None:
    """Any execution provider must be able to run them."""
    graphs = build_graphs(FloatOperators(network_arrays(random_network(tiny_config())), dtype), LIMITS)  # type: ignore[arg-type]
    for model in (graphs.encoder, graphs.decoder, graphs.keep, graphs.place):
        assert {node.domain for node in model.graph.node} == {""}
        assert [opset.domain for opset in model.opset_import] == [""]


def test_the_same_network_gives_the_same_bytes() -> None:
    """A bundle's version is made of its content: it must not change when nothing changed."""
    network = network_arrays(random_network(tiny_config()))
    first, second = (build_graphs(FloatOperators(network, "float32"), LIMITS) for _ in range(2))
    assert first.weights == second.weights
    for name in ("encoder", "decoder", "keep", "place"):
        first_bytes, second_bytes = (getattr(g, name).SerializeToString(deterministic=True) for g in (first, second))
        assert first_bytes == second_bytes


def test_weights_are_stored_once_for_both_graphs() -> None:
    """Source, target and output share one embedding; three copies would double a bundle's size."""
    network = network_arrays(random_network(tiny_config()))
    graphs = build_graphs(FloatOperators(network, "float32"), LIMITS)
    wanted = sum(array.nbytes for name, array in network.arrays.items() if name != "positions.weight")
    positions, block_ids = 24 * 32 * 4 + 20 * 32 * 4, 480 * 8
    assert len(graphs.weights) < wanted + positions + block_ids + 64 * 100  # aligned


def test_equal_tensors_are_stored_once() -> None:
    """The weight file knows tensors by what they hold, not by what they are called."""
    weights, array = WeightFile(), np.arange(100, dtype=np.float32)
    tensors = [weights.tensor(name, array.reshape(shape)) for name, shape in (("a", (100,)), ("b", (10, 10)))]
    assert len(weights.to_bytes()) == 400
    assert [entry.value for t in tensors for entry in t.external_data if entry.key == "offset"] == ["0", "0"]


@pytest.mark.parametrize("vocab_size", [480, 101, 64])
@pytest.mark.parametrize("k", [1, 2, 7, 60])
def test_best_tokens_are_the_best_with_ties_to_the_lower_id(vocab_size: int, k: int) -> None:
    """The search breaks ties by id; a shortcut through blocks must not change what is found, nor its order."""
    logits = np.random.default_rng(0).integers(0, 30, (5, 1, vocab_size)).astype(np.float32)  # many ties
    wanted = np.full((5, 1, 1), 7)
    ids, log_probs, of_wanted = run_ending(logits, wanted, k)
    reference = logits[:, 0] - np.log(np.exp(logits[:, 0].astype(np.float64)).sum(-1, keepdims=True))
    order = np.argsort(-logits[:, 0], axis=-1, kind="stable")[:, :k]
    np.testing.assert_array_equal(ids, order)
    np.testing.assert_allclose(log_probs, np.take_along_axis(reference, order, 1), atol=1e-4)
    np.testing.assert_allclose(of_wanted[:, 0, 0], reference[:, 7], atol=1e-4)


def test_tokens_of_a_smaller_output_vocabulary_keep_their_ids() -> None:
    """Columns are not ids any more: what comes out, and what is asked about, must be translated."""
    output_ids = np.sort(np.random.default_rng(1).choice(np.arange(2, 480), 127, replace=False))
    output_ids = np.concatenate([[1], output_ids]).astype(np.int64)
    logits = np.random.default_rng(0).standard_normal((3, 1, 128)).astype(np.float32)
    absent = int(np.setdiff1d(np.arange(480), output_ids)[5])
    wanted = np.array([int(output_ids[9]), absent, 1]).reshape(3, 1, 1)
    ids, log_probs, of_wanted = run_ending(logits, wanted, 4, output_ids)
    order = np.argsort(-logits[:, 0], axis=-1, kind="stable")[:, :4]
    np.testing.assert_array_equal(ids, output_ids[order])
    reference = logits[:, 0] - np.log(np.exp(logits[:, 0].astype(np.float64)).sum(-1, keepdims=True))
    np.testing.assert_allclose(log_probs, np.take_along_axis(reference, order, 1), atol=1e-5)
    np.testing.assert_allclose(of_wanted[:, 0, 0], [reference[0, 9], reference[1, 0], reference[2, 0]], atol=1e-5)


def run_ending(
    logits: np.ndarray, wanted: np.ndarray, k: int, output_ids: np.ndarray | None = None
) -> list[np.ndarray]:
    weights = WeightFile()
    g = GraphBuilder("ending", weights)
    g.input("logits", np.float32, "rows", 1, logits.shape[-1])
    g.input("wanted", np.int64, "rows", 1, 1)
    g.input("k", np.int64, 1)
    _best_tokens(g, "logits", logits.shape[-1] if output_ids is None else 480, output_ids)
    session = ort.InferenceSession(inlined(g.model(), weights.to_bytes()).SerializeToString())
    return session.run(
        ["ids", "log_probs", "wanted_log_probs"], {"logits": logits, "wanted": wanted, "k": np.array([k])}
    )


def inlined(model: onnx.ModelProto, weights: bytes) -> onnx.ModelProto:
    """The same graph with its weights inside, for a session that has no directory."""
    for tensor in model.graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            place = {entry.key: entry.value for entry in tensor.external_data}
            start = int(place["offset"])
            tensor.raw_data = weights[start : start + int(place["length"])]
            tensor.data_location = onnx.TensorProto.DEFAULT
            del tensor.external_data[:]
    return model
