"""explain.onnx: the whole network in one teacher-forced pass, its attention and intermediate numbers as outputs.

Uses the layers of `export.layers` and the bundle's own operators and weights, so that the explanation of an int8 bundle
has the same integers, scales and roundings. Only attention differs: the serving graphs fuse it into one operator that
never outputs its weights, and here it is matrix products and a softmax. `service.engine.explainer` runs the graph.

Shapes: one sentence of S source tokens and T target tokens, L layers, H heads of dh = d / H, V vocabulary.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import onnx
from onnx import TensorProto, helper

from dragoman.export.builder import GraphBuilder, WeightFile
from dragoman.export.layers import Layer, final_norm
from dragoman.export.network import Network, Text
from dragoman.export.operators import Int8Operators, Ints, Operand, Operators, Part
from dragoman.service.bundles.manifest import Limits, StateTensor

# output -> shape within one layer; all layers are stacked
ENCODER_NUMBERS: Mapping[str, tuple[str, ...]] = {
    "encoder_in": ("S", "d"),
    "encoder_normed": ("S", "d"),  # queries, keys and values are computed from it
    "encoder_query": ("H", "S", "dh"),
    "encoder_key": ("H", "S", "dh"),
    "encoder_value": ("H", "S", "dh"),
    "encoder_scores": ("H", "S", "S"),
    "encoder_attention": ("H", "S", "S"),
    "encoder_mixed": ("H", "S", "dh"),  # attention times values
    "encoder_change": ("S", "d"),  # all heads, through the output projection
    "encoder_after": ("S", "d"),  # with the residual added, and normed in a post-norm network
}
DECODER_NUMBERS: Mapping[str, tuple[str, ...]] = {
    "decoder_attention": ("H", "T", "T"),
    "cross_query": ("H", "T", "dh"),
    "cross_key": ("H", "S", "dh"),
    "cross_value": ("H", "S", "dh"),
    "cross_scores": ("H", "T", "S"),
    "cross_attention": ("H", "T", "S"),
    "cross_mixed": ("H", "T", "dh"),
}


def explain_graph(operators: Operators, limits: Limits, weights: WeightFile) -> onnx.ModelProto:
    """source [1, S], target [1, T] from bos on, labels [T, 1] (the token after each), k -> all outputs above, and the k
    best next tokens of every step."""
    g = GraphBuilder("explain", weights)
    g.input("source", np.int64, 1, "S")
    g.input("target", np.int64, 1, "T")
    g.input("labels", np.int64, "T", 1)
    g.input("k", np.int64, 1)
    open_ = OpenOperators(operators)
    table = operators.positions(g, max(limits.max_source_tokens, limits.max_new_tokens))
    memory = _encode(g, open_, table)
    _decode(g, open_, table, memory)
    open_.write(g)
    return g.model()


def _encode(g: GraphBuilder, operators: "OpenOperators", table: str) -> Operand:
    x = _embedded(g, operators, "source", table)
    for i in range(operators.network.depth("encoder")):
        operators.note("encoder_in", x)
        x = Layer(g, operators, "encoder", i).encode(x)
    return operators.operand(g, "memory", final_norm(g, operators, "encoder", x))


def _decode(g: GraphBuilder, operators: "OpenOperators", table: str, memory: Operand) -> None:
    operators.see(memory)
    x = _embedded(g, operators, "target", table)
    for i in range(operators.network.depth("decoder")):
        x = Layer(g, operators, "decoder", i).decode(x)
    x = final_norm(g, operators, "decoder", x)
    operators.output(g, "hidden", x, 1, "T", operators.network.architecture.d_model)
    _choices(g, operators, operators.logits(g, operators.operand(g, "logits", x)))


def _embedded(g: GraphBuilder, operators: "OpenOperators", tokens: Text, table: str) -> str:
    d_model, length = operators.network.architecture.d_model, "S" if tokens == "source" else "T"
    zero = g.constant([0], np.int64)
    embedding = operators.embed(g, tokens, tokens)  # [1, length, d]
    position = g.node("Slice", [table, zero, g.node("Shape", [tokens], start=1, end=2), zero])  # [length, d]
    operators.output(g, f"{tokens}_embedding", embedding, 1, length, d_model)
    operators.output(g, f"{tokens}_position", position, length, d_model)
    return g.node("Add", [embedding, position])


def _choices(g: GraphBuilder, operators: "OpenOperators", logits: str) -> None:
    """The k best tokens of every step, and the log-probabilities of the labels."""
    flat = g.node("Reshape", [logits, g.constant([-1, operators.network.architecture.vocab_size], np.int64)])  # [T, V]
    log_probs = g.node("LogSoftmax", [flat], axis=-1)
    best, ids = g.nodes("TopK", [log_probs, "k"], ["log_probs", "ids"], axis=-1)
    g.nodes("GatherElements", [flat, ids], ["logits"], axis=1)
    g.nodes("GatherElements", [log_probs, "labels"], ["label_log_probs"], axis=1)
    g.nodes("ReduceLogSumExp", [flat, g.constant([1], np.int64)], ["log_sum_exp"], keepdims=0)
    for name, dtype in ((best, np.float32), (ids, np.int64), ("logits", np.float32)):
        g.output(name, dtype, "T", "k")
    g.output("label_log_probs", np.float32, "T", 1)
    g.output("log_sum_exp", np.float32, "T")


class OpenOperators:
    """The operators of a precision, but with attention as separate nodes; intermediate values are noted by layer."""

    output_ids: Ints | None = None

    def __init__(self, operators: Operators) -> None:
        self.network: Network = operators.network
        self.dtype: Literal["float32", "float16"] = operators.dtype
        self._inner = operators
        # Weights are cut as in the serving graphs, or they would be stored twice.
        self._packed = isinstance(operators, Int8Operators)
        self._memory: Operand | None = None
        self._noted: defaultdict[str, list[str]] = defaultdict(list)

    def see(self, memory: Operand) -> None:
        """Set the memory that cross-attention reads."""
        self._memory = memory

    def note(self, name: str, value: str) -> None:
        self._noted[name].append(value)

    def write(self, g: GraphBuilder) -> None:
        """Everything noted, stacked by layer, as outputs."""
        architecture, numbers = self.network.architecture, {**ENCODER_NUMBERS, **DECODER_NUMBERS}
        sizes: dict[str, Any] = {"d": architecture.d_model, "H": architecture.num_heads, "dh": self.network.head_dim}
        for name, shape in numbers.items():
            values = self._noted[name]
            if not values:  # a recurrent decoder has no attention to its own tokens
                continue
            stacked = g.node("Concat", values, axis=0)  # each is [1, …]
            self.output(g, name, stacked, len(values), *(sizes.get(size, size) for size in shape))

    def output(self, g: GraphBuilder, name: str, value: str, *shape: int | str) -> None:
        g.nodes("Cast", [value], [name], to=TensorProto.FLOAT)
        g.output(name, np.float32, *shape)

    # Unchanged

    def embed(self, g: GraphBuilder, tokens: str, text: Text) -> str:
        return self._inner.embed(g, tokens, text)

    def positions(self, g: GraphBuilder, length: int) -> str:
        return self._inner.positions(g, length)

    def logits(self, g: GraphBuilder, x: Operand, ids: Ints | None = None) -> str:
        return self._inner.logits(g, x)  # of the whole vocabulary: any token may be asked about

    def activated_operand(self, g: GraphBuilder, point: str, x: str) -> Operand:
        return self._inner.activated_operand(g, point, x)

    def encoder_inputs(self, g: GraphBuilder) -> None:
        """None: there is one sentence."""

    def decoder_inputs(self, g: GraphBuilder) -> None:
        """None: there are no caches."""

    def state(self) -> list[StateTensor]:
        return []

    # Noted

    def norm(self, g: GraphBuilder, name: str, x: str) -> str:
        normed = self._inner.norm(g, name, x)
        if name.startswith("encoder.layers."):
            if self.network.architecture.norm == "pre" and name.endswith("feed_forward_norm"):
                self.note("encoder_after", x)
            if self.network.architecture.norm == "post" and name.endswith("self_attention_norm"):
                self.note("encoder_after", normed)
        return normed

    def operand(self, g: GraphBuilder, point: str, x: str) -> Operand:
        if point.startswith("encoder.") and point.endswith("self_attention.qkv"):
            self.note("encoder_normed", x)
        return self._inner.operand(g, point, x)

    def linear(self, g: GraphBuilder, name: str, x: Operand, part: Part = (0, 1), output: str | None = None) -> str:
        result = self._inner.linear(g, name, x, part, output)
        if name.startswith("encoder.") and name.endswith("self_attention.out"):
            self.note("encoder_change", result)
        return result

    # Attention as separate nodes

    def encoder_attention(self, g: GraphBuilder, query: str, key: str, value: str) -> str:
        heads = [self._heads(g, x) for x in (query, key, value)]
        for letter, x in zip(("query", "key", "value"), heads, strict=True):
            self.note(f"encoder_{letter}", x)
        return self._attend(g, "encoder", heads)

    def self_attention(self, g: GraphBuilder, index: int, name: str, x: Operand) -> str:
        if self._packed:
            query, key, value = g.nodes("Split", [self.linear(g, f"{name}.qkv", x)], 3, axis=-1, num_outputs=3)
        else:
            query, key, value = (self.linear(g, f"{name}.qkv", x, (part, 3)) for part in range(3))
        return self._attend(g, "decoder", [self._heads(g, each) for each in (query, key, value)], causal=True)

    def cross_attention(self, g: GraphBuilder, index: int, query: str) -> str:
        assert self._memory is not None, "the encoder comes first"
        name = f"{self.network.layer('decoder', index)}.cross_attention.kv"
        key, value = (self.linear(g, name, self._memory, (part, 2)) for part in range(2))
        heads = [self._heads(g, x) for x in (query, key, value)]
        for letter, x in zip(("query", "key", "value"), heads, strict=True):
            self.note(f"cross_{letter}", x)
        return self._attend(g, "cross", heads)

    def recurrence(self, g: GraphBuilder, index: int, forget: str, candidate: str) -> str:
        """The cells of all steps, one after the other: [1, T, d] each."""
        dtype, width = helper.np_dtype_to_tensor_dtype(np.dtype(self.dtype)), self.network.architecture.d_model
        value = {name: helper.make_tensor_value_info(name, dtype, [1, width]) for name in ("c", "f", "x", "n", "out")}
        kept = [
            helper.make_node("Sub", ["c", "x"], ["gap"]),
            helper.make_node("Mul", ["f", "gap"], ["share"]),
            helper.make_node("Add", ["share", "x"], ["n"]),
            helper.make_node("Identity", ["n"], ["out"]),
        ]
        body = helper.make_graph(kept, "cell", [value["c"], value["f"], value["x"]], [value["n"], value["out"]])
        start = g.constant(np.zeros((1, width)), self.dtype)
        axes = {"scan_input_axes": [1, 1], "scan_output_axes": [1]}
        return g.nodes("Scan", [start, forget, candidate], 2, body=body, num_scan_inputs=2, **axes)[1]

    def _heads(self, g: GraphBuilder, x: str) -> str:
        shape = g.constant([0, 0, self.network.architecture.num_heads, self.network.head_dim], np.int64)
        split = g.node("Transpose", [g.node("Reshape", [x, shape])], perm=[0, 2, 1, 3])  # [1, H, T, dh]
        return split if self.dtype == "float32" else g.node("Cast", [split], to=TensorProto.FLOAT)

    def _attend(self, g: GraphBuilder, kind: str, heads: Sequence[str], causal: bool = False) -> str:
        query, key, value = heads  # each [1, H, T or S, dh]
        turned = g.node("Transpose", [key], perm=[0, 1, 3, 2])  # [1, H, dh, S]
        scale = g.constant(1 / np.sqrt(self.network.head_dim), np.float32)
        scores = g.node("Mul", [g.node("MatMul", [query, turned]), scale])  # [1, H, T, S]
        if causal:
            scores = self._hide_future(g, scores)
        weights = g.node("Softmax", [scores], axis=-1)
        mixed = g.node("MatMul", [weights, value])  # [1, H, T, dh]
        if not causal:
            self.note(f"{kind}_scores", scores)
            self.note(f"{kind}_mixed", mixed)
        self.note(f"{kind}_attention", weights)
        flat = g.constant([0, 0, self.network.architecture.d_model], np.int64)
        joined = g.node("Reshape", [g.node("Transpose", [mixed], perm=[0, 2, 1, 3]), flat])  # [1, T, d]
        return joined if self.dtype == "float32" else g.node("Cast", [joined], to=TensorProto.FLOAT16)

    def _hide_future(self, g: GraphBuilder, scores: str) -> str:
        zero, one = g.constant(0, np.int64), g.constant(1, np.int64)
        length = g.node("Squeeze", [g.node("Shape", ["target"], start=1, end=2)])
        column = g.node("Range", [zero, length, one])  # [T]
        row = g.node("Unsqueeze", [column, g.constant([1], np.int64)])  # [T, 1]
        return g.node("Where", [g.node("LessOrEqual", [column, row]), scores, g.constant(-np.inf, np.float32)])
