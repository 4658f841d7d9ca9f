"""Which ONNX operators compute the parts of a layer: standard ones in floating point, integer ones in int8.

Both classes have the same methods, so that `export.graphs` knows the structure of the network and no operator's name.
`export.quantize` chooses the int8 scales.

Shapes: rows of the decoder's batch, B sentences of S tokens in the encoder, d = d_model, H heads of dh = d / H.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt
from onnx import TensorProto

from dragoman.export.builder import MICROSOFT, GraphBuilder
from dragoman.export.network import Network, Text
from dragoman.export.state_tensors import float_state, int8_state
from dragoman.service.bundles.manifest import Limits, StateTensor

Ints = npt.NDArray[np.int64]
Part = tuple[int, int]  # (which, of how many): a slice of a fused linear layer's columns


@dataclass(frozen=True)
class Operand:
    """What a linear layer multiplies: a float tensor, or a quantized one with its scale and zero point."""

    name: str
    scale: float = 1.0
    zero_point: int = 0


class Operators(Protocol):
    """How one precision computes; `g` is the graph that gets the nodes."""

    network: Network
    dtype: Literal["float32", "float16"]  # of the residual stream and of the state
    output_ids: Ints | None  # the tokens that may come out, ascending; None: the whole vocabulary

    def embed(self, g: GraphBuilder, tokens: str, text: Text) -> str: ...
    def positions(self, g: GraphBuilder, length: int) -> str: ...
    def norm(self, g: GraphBuilder, name: str, x: str) -> str: ...
    def operand(self, g: GraphBuilder, point: str, x: str) -> Operand: ...
    def activated_operand(self, g: GraphBuilder, point: str, x: str) -> Operand: ...
    def linear(self, g: GraphBuilder, name: str, x: Operand, part: Part = (0, 1), output: str | None = None) -> str: ...
    def logits(self, g: GraphBuilder, x: Operand, ids: Ints | None = None) -> str: ...
    def encoder_attention(self, g: GraphBuilder, query: str, key: str, value: str) -> str: ...
    def self_attention(self, g: GraphBuilder, index: int, name: str, x: Operand) -> str: ...
    def cross_attention(self, g: GraphBuilder, index: int, query: str) -> str: ...
    def recurrence(self, g: GraphBuilder, index: int, forget: str, candidate: str) -> str: ...
    def encoder_inputs(self, g: GraphBuilder) -> None: ...
    def decoder_inputs(self, g: GraphBuilder) -> None: ...
    def state(self) -> list[StateTensor]: ...


def _columns(array: npt.NDArray[np.generic], part: Part) -> npt.NDArray[np.generic]:
    which, count = part
    width = array.shape[-1] // count
    return array[..., which * width : (which + 1) * width]


def _suffix(part: Part) -> str:
    return "" if part == (0, 1) else f".{part[0]}"


def cell_step(g: GraphBuilder, index: int, forget: str, candidate: str) -> str:
    """The recurrent cell of a layer after one step: a share of the old value and the rest of the new one."""
    kept = g.node("Mul", [forget, g.node("Sub", [f"cell{index}", candidate])])
    return g.nodes("Add", [kept, candidate], [f"cell{index}_out"])[0]  # [rows, 1, d]


def _swish(g: GraphBuilder, x: str) -> str:
    return g.node("Mul", [x, g.node("Sigmoid", [x])])


class FloatOperators:
    """fp32 or fp16 with standard operators only, so that any execution provider runs them.

    Attention reads whole buffers under a length mask, so the last bits of a row may depend on the width of the buffers.
    """

    output_ids: Ints | None = None

    def __init__(self, network: Network, dtype: Literal["float32", "float16"]) -> None:
        self.network, self.dtype = network, dtype

    def embed(self, g: GraphBuilder, tokens: str, text: Text) -> str:
        rows = g.node("Gather", [self._weight(g, self.network.table(text)), tokens])
        return g.node("Mul", [rows, g.constant(self.network.scale, self.dtype)])

    def positions(self, g: GraphBuilder, length: int) -> str:
        return g.weight("positions.weight", self.network.arrays["positions.weight"][:length].astype(self.dtype))

    def norm(self, g: GraphBuilder, name: str, x: str) -> str:
        gain, bias = self._weight(g, f"{name}.weight"), self._weight(g, f"{name}.bias")
        return g.node("LayerNormalization", [x, gain, bias], axis=-1, epsilon=self.network.norm_epsilon)

    def operand(self, g: GraphBuilder, point: str, x: str) -> Operand:
        return Operand(x)

    def activated_operand(self, g: GraphBuilder, point: str, x: str) -> Operand:
        return Operand(_swish(g, x) if self.network.architecture.activation == "swish" else g.node("Relu", [x]))

    def linear(self, g: GraphBuilder, name: str, x: Operand, part: Part = (0, 1), output: str | None = None) -> str:
        inputs, names = [x.name, self._weight(g, f"{name}.weight", part)], 1 if output is None else [output]
        if f"{name}.bias" not in self.network.arrays:
            return g.nodes("MatMul", inputs, names)[0]
        return g.nodes("Add", [g.node("MatMul", inputs), self._weight(g, f"{name}.bias", part)], names)[0]

    def logits(self, g: GraphBuilder, x: Operand, ids: Ints | None = None) -> str:
        assert ids is None, "in floating point the whole vocabulary comes out, as in torch"
        flat = g.node("Reshape", [x.name, g.constant([-1, self.network.architecture.d_model], np.int64)])  # [rows, d]
        bias = [self._weight(g, "output.bias")] if "output.bias" in self.network.arrays else []
        logits = g.node("Gemm", [flat, self._weight(g, self.network.output_table), *bias], transB=1)  # [rows, V]
        if self.dtype != "float32":
            logits = g.node("Cast", [logits], to=TensorProto.FLOAT)
        return g.node("Unsqueeze", [logits, g.constant([1], np.int64)])  # [rows, 1, V]

    def encoder_attention(self, g: GraphBuilder, query: str, key: str, value: str) -> str:
        heads = self.network.architecture.num_heads
        inputs = [query, key, value, "", "", "", "source_lengths"]
        return g.node("Attention", inputs, q_num_heads=heads, kv_num_heads=heads)

    def self_attention(self, g: GraphBuilder, index: int, name: str, x: Operand) -> str:
        query, key, value = (self._heads(g, self.linear(g, f"{name}.qkv", x, (part, 3))) for part in range(3))
        caches = []
        for letter, new in (("k", key), ("v", value)):
            past = f"self_{letter}{index}"
            caches += g.nodes("TensorScatter", [past, new, "slots"], [f"{past}_out"], axis=-2)
        return self._attend(g, [query, *caches, "", "", "", "num_tokens"])

    def cross_attention(self, g: GraphBuilder, index: int, query: str) -> str:
        names = [f"cross_{letter}{index}" for letter in "kv"]
        return self._attend(g, [self._heads(g, query), *names, "", "", "", "source_lengths"])

    def recurrence(self, g: GraphBuilder, index: int, forget: str, candidate: str) -> str:
        return cell_step(g, index, forget, candidate)

    def encoder_inputs(self, g: GraphBuilder) -> None:
        g.input("source_lengths", np.int64, "batch")  # sources may be padded: the mask hides the rest

    def decoder_inputs(self, g: GraphBuilder) -> None:
        one, axis = g.constant(1, np.int64), g.constant([1], np.int64)
        ends = g.node("Cast", [g.node("Squeeze", ["source_ends", axis])], to=TensorProto.INT64)
        g.nodes("Add", [ends, one], ["source_lengths"])  # [rows]
        g.nodes("Cast", [g.node("Squeeze", ["positions", axis])], ["slots"], to=TensorProto.INT64)
        g.nodes("Add", ["slots", one], ["num_tokens"])  # [rows]

    def state(self) -> list[StateTensor]:
        return float_state(self.network, self.dtype)

    def _heads(self, g: GraphBuilder, x: str) -> str:
        shape = g.constant([0, self.network.architecture.num_heads, 1, self.network.head_dim], np.int64)
        return g.node("Reshape", [x, shape])  # [rows, 1, d] -> [rows, H, 1, dh]: one token needs no transpose

    def _attend(self, g: GraphBuilder, inputs: list[str]) -> str:
        flat = g.constant([0, 1, self.network.architecture.d_model], np.int64)
        return g.node("Reshape", [g.node("Attention", inputs), flat])  # [rows, 1, d]

    def _weight(self, g: GraphBuilder, name: str, part: Part = (0, 1)) -> str:
        return g.weight(name + _suffix(part), _columns(self.network.arrays[name], part).astype(self.dtype))


@dataclass(frozen=True)
class QuantizedWeight:
    """integers [in, out] (a table of tokens: [V, d]); times their scale they are the weights."""

    integers: npt.NDArray[np.int8]
    scale: float


@dataclass(frozen=True)
class Activation:
    """How a point's values become unsigned integers: round(x / scale) + zero_point, clipped to 0 … most."""

    scale: float
    zero_point: int
    most: int = 255


@dataclass(frozen=True)
class Quantization:
    """What int8 needs besides the float network; made by `dragoman.export.quantize`."""

    weights: Mapping[str, QuantizedWeight]  # by the name of the float weight
    activations: Mapping[str, Activation]  # by point: the linear layer that takes the activation


class Int8Operators:
    """Integer matrix products are exact, so a row gets the same bits alone and in a crowd; attention is ragged.

    Activations are unsigned around a zero point, with one calibrated scale each; after a ReLU the zero point is 0, so
    that rounding to unsigned integers is the ReLU itself. Only `com.microsoft` has these operators.
    """

    dtype: Literal["float32", "float16"] = "float32"

    def __init__(
        self, network: Network, quantization: Quantization, limits: Limits, output_ids: Ints | None = None
    ) -> None:
        self.network, self._quantization, self._limits = network, quantization, limits
        self.output_ids = output_ids

    def embed(self, g: GraphBuilder, tokens: str, text: Text) -> str:
        name = self.network.table(text)
        scale = g.constant(self._quantization.weights[name].scale * self.network.scale, np.float32)
        return g.node("DequantizeLinear", [g.node("Gather", [self._table(g, name), tokens]), scale])

    def positions(self, g: GraphBuilder, length: int) -> str:
        return g.weight("positions.weight", self.network.arrays["positions.weight"][:length])

    def norm(self, g: GraphBuilder, name: str, x: str) -> str:
        gain, bias = (g.weight(f"{name}.{part}", self.network.arrays[f"{name}.{part}"]) for part in ("weight", "bias"))
        return g.node("LayerNormalization", [x, gain, bias], axis=-1, epsilon=self.network.norm_epsilon)

    def operand(self, g: GraphBuilder, point: str, x: str) -> Operand:
        to = self._quantization.activations[point]
        if to.most < 255:
            x = g.node("Min", [x, g.constant((to.most - to.zero_point) * to.scale, np.float32)])
        inputs = [x, g.constant(to.scale, np.float32), g.constant(to.zero_point, np.uint8)]
        return Operand(g.node("QuantizeLinear", inputs), to.scale, to.zero_point)

    def activated_operand(self, g: GraphBuilder, point: str, x: str) -> Operand:
        if self.network.architecture.activation == "swish":
            return self.operand(g, point, _swish(g, x))
        assert self._quantization.activations[point].zero_point == 0, "negative values must clip to zero"
        return self.operand(g, point, x)

    def linear(self, g: GraphBuilder, name: str, x: Operand, part: Part = (0, 1), output: str | None = None) -> str:
        weight, suffix = self._quantization.weights[f"{name}.weight"], _suffix(part)
        integers = g.weight(f"{name}.weight{suffix}", _columns(weight.integers, part))
        bias = self.network.arrays.get(f"{name}.bias")
        bias_name = "" if bias is None else g.weight(f"{name}.bias{suffix}", _columns(bias, part))
        return self._product(g, x, x.scale, integers, g.constant(weight.scale, np.float32), bias_name, output)

    def logits(self, g: GraphBuilder, x: Operand, ids: Ints | None = None) -> str:
        # One table for input and output: the runtime picks and transposes its rows once, when it loads the graph.
        name, bias = self.network.output_table, self.network.arrays.get("output.bias")
        table, scale = self._table(g, name), g.constant(self._quantization.weights[name].scale, np.float32)
        if ids is not None:
            table = g.node("Gather", [table, g.weight("output_ids", ids)])
            bias = None if bias is None else bias[ids]
        transposed = g.node("Transpose", [table], perm=[1, 0])  # [d, V]
        bias_name = "" if bias is None else g.weight("output.bias", bias)
        return self._product(g, x, x.scale, transposed, scale, bias_name, None)  # [rows, 1, V]

    def encoder_attention(self, g: GraphBuilder, query: str, key: str, value: str) -> str:
        heads = self.network.architecture.num_heads  # no mask: a batch has sources of one length
        return g.node("Attention", [query, key, value], q_num_heads=heads, kv_num_heads=heads)

    def self_attention(self, g: GraphBuilder, index: int, name: str, x: Operand) -> str:
        packed = self.linear(g, f"{name}.qkv", x)  # [rows, 1, 3 d]
        caches = [f"self_k{index}", f"self_v{index}"]
        return self._ragged(g, [packed, "", ""], caches, "positions", self._limits.max_new_tokens)

    def cross_attention(self, g: GraphBuilder, index: int, query: str) -> str:
        # The operator always appends a token. It gets the last source token, and writes it where it already is.
        last = [f"last_{letter}{index}" for letter in "kv"]
        caches = [f"cross_k{index}", f"cross_v{index}"]
        return self._ragged(g, [query, *last], caches, "source_ends", self._limits.max_source_tokens)

    def recurrence(self, g: GraphBuilder, index: int, forget: str, candidate: str) -> str:
        return cell_step(g, index, forget, candidate)

    def encoder_inputs(self, g: GraphBuilder) -> None:
        """None: sources of one batch have one length."""

    def decoder_inputs(self, g: GraphBuilder) -> None:
        """None beyond what every decoder takes."""

    def state(self) -> list[StateTensor]:
        return int8_state(self.network, self.dtype)

    def _ragged(self, g: GraphBuilder, new: list[str], caches: list[str], lengths: str, slots: int) -> str:
        """New keys and values go into the caches at the length of each row; a row reads nothing behind its length."""
        heads = self.network.architecture.num_heads
        outputs = [f"{caches[0]}_attended", *(f"{cache}_out" for cache in caches)]
        inputs = [
            *new,
            *caches,
            lengths,
            g.constant([slots], np.int32),
        ]  # the size of the caches
        return g.nodes("GroupQueryAttention", inputs, outputs, MICROSOFT, num_heads=heads, kv_num_heads=heads)[0]

    def _product(
        self, g: GraphBuilder, x: Operand, x_scale: float, weight: str, scale: str, bias: str, output: str | None
    ) -> str:
        zero_point = g.constant(x.zero_point, np.uint8)
        inputs = [x.name, weight, g.constant(x_scale, np.float32), scale, zero_point, "", bias]
        names: int | list[str] = 1 if output is None else [output]
        return g.nodes("MatMulIntegerToFloat", inputs, names, MICROSOFT)[0]

    def _table(self, g: GraphBuilder, name: str) -> str:
        return g.weight(name.removesuffix(".weight"), self._quantization.weights[name].integers)
