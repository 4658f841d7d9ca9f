"""The graphs of a bundle: the encoder, one decoder step for ragged rows, and the two that move rows on a device.

Built node by node from a network's arrays. `export.layers` says what a layer is, and `export.operators` which operators
compute it, so that all precisions are the same network.

The encoder ends with the cross keys and values of every decoder layer, `[batch, source, d]`. The decoder appends to its
caches in place (its cache outputs are bound to the memory of its cache inputs) and ends with the k best next tokens.
"""

from dataclasses import dataclass

import numpy as np
import onnx

from dragoman.export.builder import GraphBuilder, WeightFile
from dragoman.export.explain_graph import explain_graph
from dragoman.export.layers import Layer, final_norm
from dragoman.export.operators import Ints, Operators
from dragoman.model.tokenizer import UNK_ID
from dragoman.service.bundles.manifest import Limits, StateTensor

_MOST_BLOCK = 128


@dataclass(frozen=True)
class Graphs:
    encoder: onnx.ModelProto
    decoder: onnx.ModelProto
    keep: onnx.ModelProto
    place: onnx.ModelProto
    explain: onnx.ModelProto
    weights: bytes
    state: tuple[StateTensor, ...]


def build_graphs(operators: Operators, limits: Limits) -> Graphs:
    weights = WeightFile()
    encoder, decoder = encoder_graph(operators, limits, weights), decoder_graph(operators, limits, weights)
    heads, head_dim = operators.network.architecture.num_heads, operators.network.head_dim
    return Graphs(
        encoder=encoder,
        decoder=decoder,
        keep=keep_graph(operators.dtype),
        place=place_graph(operators.dtype, heads, head_dim),
        explain=explain_graph(operators, limits, weights),
        weights=weights.to_bytes(),
        state=tuple(operators.state()),
    )


def encoder_graph(operators: Operators, limits: Limits, weights: WeightFile) -> onnx.ModelProto:
    """source [batch, source] -> cross_k0, cross_v0, …: [batch, source, d]"""
    g, network = GraphBuilder("encoder", weights), operators.network
    g.input("source", np.int64, "batch", "source")
    operators.encoder_inputs(g)
    table = operators.positions(g, limits.max_source_tokens)
    length, zero = g.node("Shape", ["source"], start=1, end=2), g.constant([0], np.int64)
    x = g.node("Add", [operators.embed(g, "source", "source"), g.node("Slice", [table, zero, length, zero])])
    for i in range(network.depth("encoder")):
        x = Layer(g, operators, "encoder", i).encode(x)
    x = final_norm(g, operators, "encoder", x)
    memory = operators.operand(g, "memory", x)  # all cross layers take the same: rounded once
    for i in range(network.depth("decoder")):
        for part, letter in enumerate("kv"):
            name = f"{network.layer('decoder', i)}.cross_attention.kv"
            operators.linear(g, name, memory, (part, 2), f"cross_{letter}{i}")
            g.output(f"cross_{letter}{i}", operators.dtype, "batch", "source", network.architecture.d_model)
    return g.model()


def decoder_graph(operators: Operators, limits: Limits, weights: WeightFile) -> onnx.ModelProto:
    """One step of ragged rows: token, position, source length and caches of each row -> its k best next tokens."""
    g, network = GraphBuilder("decoder", weights), operators.network
    g.input("tokens", np.int64, "rows", 1)
    g.input("positions", np.int32, "rows", 1)
    g.input("source_ends", np.int32, "rows", 1)  # the index of the last source token
    g.input("wanted", np.int64, "rows", 1, 1)
    g.input("k", np.int64, 1)
    for tensor in operators.state():
        g.input(tensor.name, tensor.dtype, *tensor.shape)
        if tensor.output is not None:
            g.output(tensor.output, tensor.dtype, *tensor.shape)
    operators.decoder_inputs(g)
    table = operators.positions(g, limits.max_new_tokens)
    x = g.node("Add", [operators.embed(g, "tokens", "target"), g.node("Gather", [table, "positions"])])  # [rows, 1, d]
    for i in range(network.depth("decoder")):
        x = Layer(g, operators, "decoder", i).decode(x)
    x = final_norm(g, operators, "decoder", x)
    logits = operators.logits(g, operators.operand(g, "logits", x), operators.output_ids)
    _best_tokens(g, logits, network.architecture.vocab_size, operators.output_ids)
    return g.model()


def _best_tokens(g: GraphBuilder, logits: str, vocab_size: int, output_ids: Ints | None) -> None:
    """logits [rows, 1, V] -> ids, log_probs [rows, k], best first, ties by lower id; wanted_log_probs [rows, 1, 1]"""
    log_probs = g.node("LogSoftmax", [logits], axis=-1)
    ids = np.arange(vocab_size, dtype=np.int64) if output_ids is None else output_ids
    wanted = "wanted" if output_ids is None else _columns(g, vocab_size, output_ids)
    g.nodes("GatherElements", [log_probs, wanted], ["wanted_log_probs"], axis=2)
    width = _block_width(len(ids))
    _best_by_blocks(g, log_probs, ids.reshape(-1, width))
    g.output("ids", np.int64, "rows", "k")
    g.output("log_probs", np.float32, "rows", "k")
    g.output("wanted_log_probs", np.float32, "rows", 1, 1)


def _columns(g: GraphBuilder, vocab_size: int, output_ids: Ints) -> str:
    """The columns of the wanted tokens; a token that cannot come out gets the column of the unknown token."""
    columns = np.full(vocab_size, int(np.flatnonzero(output_ids == UNK_ID)[0]), np.int64)
    columns[output_ids] = np.arange(len(output_ids))
    return g.node("Gather", [g.weight("output_columns", columns), "wanted"])


def _best_by_blocks(g: GraphBuilder, log_probs: str, ids: Ints) -> None:
    """ids [blocks, width]. The k best tokens are in the k blocks with the highest maxima, which are cheap to find."""
    blocks, width = ids.shape
    table = g.node("Reshape", [log_probs, g.constant([-1, blocks, width], np.int64)])  # [rows, blocks, width]
    maxima = g.node("ReduceMax", [table, g.constant([2], np.int64)])  # [rows, blocks, 1]
    few = g.node("Min", ["k", g.constant([blocks], np.int64)])
    found = g.nodes("TopK", [maxima, few], 2, axis=1)[1]
    found = g.nodes("TopK", [found, few], 2, axis=1, largest=0)[0]  # ascending, so that ties go to the lower id
    chosen = g.node("Flatten", [g.node("GatherND", [table, found], batch_dims=1)], axis=1)  # [rows, few x width]
    chosen_ids = g.node("Flatten", [g.node("Gather", [g.weight("block_ids", ids), found])], axis=1)
    best = g.nodes("TopK", [chosen, "k"], ["log_probs", "best"], axis=-1)[1]
    g.nodes("GatherElements", [chosen_ids, best], ["ids"], axis=1)


def _block_width(vocab_size: int) -> int:
    """The divisor nearest to 64, which was fastest; for a prime number of tokens, blocks of one."""
    widths = [width for width in range(1, _MOST_BLOCK + 1) if vocab_size % width == 0]
    return min(widths, key=lambda width: abs(width - 64))


def keep_graph(dtype: str) -> onnx.ModelProto:
    """One state tensor on a device: new row j is old row parents[j]."""
    g = GraphBuilder("keep", WeightFile())
    g.input("tensor", dtype, "rows", "heads", "slots", "head_dim")
    g.input("parents", np.int64, "kept")
    g.nodes("Gather", ["tensor", "parents"], ["kept_tensor"], axis=0)
    g.output("kept_tensor", dtype, "kept", "heads", "slots", "head_dim")
    return g.model()


def place_graph(dtype: str, heads: int, head_dim: int) -> onnx.ModelProto:
    """Write one encoded cross tensor, [batch, source, d], into new rows of the state on a device."""
    g = GraphBuilder("place", WeightFile())
    g.input("encoded", dtype, "batch", "source", heads * head_dim)
    g.input("tensor", dtype, "batch", heads, "slots", head_dim)
    split = g.node("Reshape", ["encoded", g.constant([0, 0, heads, head_dim], np.int64)])
    update = g.node("Transpose", [split], perm=[0, 2, 1, 3])  # [batch, H, source, dh]
    g.nodes("TensorScatter", ["tensor", update], ["placed_tensor"], axis=-2)
    g.output("placed_tensor", dtype, "batch", heads, "slots", head_dim)
    return g.model()
