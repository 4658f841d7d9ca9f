"""A Firefox student network by our names: its float arrays, and its own integers and scales for int8.

Encoder of Transformer layers, decoder of recurrent cells (SSRU) with cross-attention, all of it post-norm. Decoding
begins with a zero embedding, which gets an id of its own: the first of the zero rows at the end of the target table.
"""

import math
from dataclasses import dataclass

import numpy as np

from dragoman.export import ExportError
from dragoman.export.importers.student_file import QuantizedItem, StudentFile
from dragoman.export.network import NEVER, Floats, Network
from dragoman.export.operators import Activation, Quantization, QuantizedWeight
from dragoman.service.bundles.manifest import Architecture, Limits

_EPSILON = 1e-9
_ROWS_MULTIPLE = 64  # of the target table: whole blocks for the search of the best tokens
UNK_ID = 1
# key of the configuration -> what a student model has there
_EXPECTED = {
    "type": ("transformer",),
    "transformer-decoder-autoreg": ("rnn",),
    "dec-cell": ("ssru",),
    "transformer-preprocess": ("",),
    "transformer-postprocess": ("dan",),
    "transformer-postprocess-emb": ("d",),
    "transformer-postprocess-top": ("",),
    "transformer-ffn-activation": ("relu", "swish"),
    "transformer-ffn-depth": ("2",),
    "transformer-train-position-embeddings": ("false",),
}


@dataclass(frozen=True)
class StudentNetwork:
    network: Network
    quantization: Quantization
    source_size: int
    target_size: int  # pieces; the id after the last one begins a translation


def check_architecture(file: StudentFile) -> None:
    for key, allowed in _EXPECTED.items():
        found = file.configuration.get(key, "")
        if found not in allowed:
            wanted = " or ".join(each or "nothing" for each in allowed)
            raise ExportError(f"{file.path} has {found or 'nothing'} for {key}, where a student model has {wanted}")


def read_network(file: StudentFile, limits: Limits) -> StudentNetwork:
    check_architecture(file)
    return _Reader(file, limits).read()


class _Reader:
    """Moves the items of one file to our names, and remembers integers and scales on the way."""

    def __init__(self, file: StudentFile, limits: Limits) -> None:
        self._file, self._limits = file, limits
        self._width, self._inner = file.number("dim-emb"), file.number("transformer-dim-ffn")
        self._arrays: dict[str, Floats] = {}
        self._weights: dict[str, QuantizedWeight] = {}
        self._activations: dict[str, Activation] = {}

    def read(self) -> StudentNetwork:
        source_size, target_size = self._tables()
        for i in range(self._file.number("enc-depth")):
            ours, theirs = f"encoder.layers.{i}", f"encoder_l{i + 1}"
            self._attention(f"{ours}.self_attention", f"{theirs}_self")
            self._feed_forward(ours, theirs)
        for i in range(self._file.number("dec-depth")):
            ours, theirs = f"decoder.layers.{i}", f"decoder_l{i + 1}"
            self._recurrence(ours, theirs)
            self._cross_attention(f"{ours}.cross_attention", f"{theirs}_context")
            self._feed_forward(ours, theirs)
        network = Network(self._architecture(), self._arrays, norm_epsilon=_EPSILON)
        return StudentNetwork(network, Quantization(self._weights, self._activations), source_size, target_size)

    def _architecture(self) -> Architecture:
        longest = max(self._limits.max_source_tokens, self._limits.max_new_tokens)
        self._arrays["positions.weight"] = positions(longest, self._width)
        return Architecture(
            vocab_size=len(self._arrays["output.bias"]),
            d_model=self._width,
            d_ff=self._inner,
            num_heads=self._file.number("transformer-heads"),
            encoder_layers=self._file.number("enc-depth"),
            decoder_layers=self._file.number("dec-depth"),
            norm="post",
            positions="sinusoidal",
            max_positions=longest,
            share_layers=False,
            activation=self._file.configuration["transformer-ffn-activation"],
            decoder="ssru",
        )

    def _tables(self) -> tuple[int, int]:
        """The embedding tables and the output; returns the sizes of the two vocabularies."""
        if "Wemb" in self._file.quantized:
            source = target = self._item("Wemb", None, self._width)
            self._table("embedding.weight", target, pad=True)
        else:
            source, target = (self._item(f"{side}_Wemb", None, self._width) for side in ("encoder", "decoder"))
            self._table("source_embedding.weight", source, pad=False)
            self._table("target_embedding.weight", target, pad=True)
        size = len(target.integers)
        if "decoder_ff_logit_out_W" in self._file.quantized:
            item = self._item("decoder_ff_logit_out_W", self._width, size)
            turned = np.ascontiguousarray(item.integers.T)  # [V, d]
            self._table("output.weight", QuantizedItem(turned, item.multiplier), pad=True)
        self._arrays["output.bias"] = self._output_bias(size)
        self._activations["logits"] = Activation(1 / self._output_alpha(), 128)
        return len(source.integers), size

    def _table(self, name: str, item: QuantizedItem, pad: bool) -> None:
        more = _padding(len(item.integers)) if pad else 0
        integers = np.pad(item.integers, ((0, more), (0, 0)))
        self._weights[name] = QuantizedWeight(integers, 1 / item.multiplier, wide=True)
        self._arrays[name] = np.asarray(integers / np.float32(item.multiplier), np.float32)

    def _output_bias(self, size: int) -> Floats:
        found = self._file.floats.get("decoder_ff_logit_out_b")
        bias = np.zeros(size, np.float32) if found is None else found.reshape(-1)
        if len(bias) != size:
            raise ExportError(f"{self._file.path} has {len(bias)} output biases for {size} pieces: get the file again")
        bias = np.concatenate([bias, np.full(_padding(size), NEVER, np.float32)])
        bias[UNK_ID] = NEVER  # Marian never writes the unknown piece
        return np.asarray(bias, np.float32)

    def _output_alpha(self) -> float:
        for name in ("none_QuantMultA", "decoder_ff_logit_out_W_QuantMultA"):
            if name in self._file.floats:
                return float(self._file.floats[name].item())
        for name in ("Wemb_QuantMultA", "decoder_Wemb_QuantMultA"):
            if name in self._file.quantized:  # of this type only because of its name
                return float(self._file.quantized[name].real.item())
        return self._missing("none_QuantMultA")

    def _attention(self, ours: str, theirs: str) -> None:
        self._fused(f"{ours}.qkv", [f"{theirs}_W{letter}" for letter in "qkv"])
        self._point(f"{ours}.qkv", [f"{theirs}_W{letter}" for letter in "qkv"])
        self._linear(f"{ours}.out", f"{theirs}_Wo", self._width, self._width)
        self._norm(f"{ours}_norm", f"{theirs}_Wo_ln")

    def _cross_attention(self, ours: str, theirs: str) -> None:
        self._linear(f"{ours}.q", f"{theirs}_Wq", self._width, self._width)
        self._fused(f"{ours}.kv", [f"{theirs}_W{letter}" for letter in "kv"])
        # All cross layers read the same memory, which is rounded once.
        layers = range(1, self._file.number("dec-depth") + 1)
        self._point("memory", [f"decoder_l{i}_context_W{letter}" for i in layers for letter in "kv"])
        self._linear(f"{ours}.out", f"{theirs}_Wo", self._width, self._width)
        self._norm(f"{ours}_norm", f"{theirs}_Wo_ln")

    def _recurrence(self, ours: str, theirs: str) -> None:
        self._weight(f"{ours}.recurrence.candidate", f"{theirs}_rnn_W", self._width, self._width)
        self._weight(f"{ours}.recurrence.forget", f"{theirs}_rnn_Wf", self._width, self._width)
        self._arrays[f"{ours}.recurrence.forget.bias"] = self._vector(f"{theirs}_rnn_bf", self._width)
        self._point(f"{ours}.recurrence", [f"{theirs}_rnn_W", f"{theirs}_rnn_Wf"])
        self._norm(f"{ours}.recurrence_norm", f"{theirs}_rnn_ffn_ln")

    def _feed_forward(self, ours: str, theirs: str) -> None:
        self._linear(f"{ours}.feed_forward.up", f"{theirs}_ffn_W1", self._width, self._inner)
        self._linear(f"{ours}.feed_forward.down", f"{theirs}_ffn_W2", self._inner, self._width)
        if self._file.configuration["transformer-ffn-activation"] == "relu":
            # Nothing is below zero after a ReLU, so all levels go above it.
            alpha = self._alpha(f"{theirs}_ffn_W2")
            self._activations[f"{ours}.feed_forward.down"] = Activation(127 / (255 * alpha), 0)
        self._norm(f"{ours}.feed_forward_norm", f"{theirs}_ffn_ffn_ln")

    def _linear(self, ours: str, theirs: str, rows: int, columns: int) -> None:
        self._weight(ours, theirs, rows, columns)
        self._arrays[f"{ours}.bias"] = self._vector(_bias_of(theirs), columns)
        self._point(ours, [theirs])

    def _weight(self, ours: str, theirs: str, rows: int, columns: int) -> None:
        item = self._item(theirs, rows, columns)
        self._arrays[f"{ours}.weight"] = item.real
        self._weights[f"{ours}.weight"] = QuantizedWeight(item.integers, 1 / item.multiplier, wide=True)

    def _fused(self, ours: str, theirs: list[str]) -> None:
        """Several layers that read the same input side by side; each keeps its scale."""
        parts = [self._item(name, self._width, self._width) for name in theirs]
        self._arrays[f"{ours}.weight"] = np.concatenate([part.real for part in parts], -1)
        self._arrays[f"{ours}.bias"] = np.concatenate([self._vector(_bias_of(name), self._width) for name in theirs])
        integers, scales = (
            np.concatenate([part.integers for part in parts], -1),
            [1 / part.multiplier for part in parts],
        )
        self._weights[f"{ours}.weight"] = QuantizedWeight(integers, 0.0, tuple(scales), wide=True)

    def _norm(self, ours: str, theirs: str) -> None:
        self._arrays[f"{ours}.weight"] = self._vector(f"{theirs}_scale", self._width)
        self._arrays[f"{ours}.bias"] = self._vector(f"{theirs}_bias", self._width)

    def _point(self, ours: str, theirs: list[str]) -> None:
        """One scale for what these layers read; where the file has several, the widest."""
        self._activations[ours] = Activation(1 / min(map(self._alpha, theirs)), 128)

    def _alpha(self, name: str) -> float:
        found = self._file.floats.get(f"{name}_QuantMultA")
        return self._missing(f"{name}_QuantMultA") if found is None else float(found.item())

    def _item(self, name: str, rows: int | None, columns: int) -> QuantizedItem:
        item = self._file.quantized.get(name)
        if item is None:
            self._missing(name)
        assert item is not None
        if item.integers.ndim != 2 or item.integers.shape[1] != columns or rows not in (None, item.integers.shape[0]):
            raise ExportError(
                f"{self._file.path} has {name} of the shape {list(item.integers.shape)} where its configuration says "
                f"{[rows or 'pieces', columns]}: get the file again"
            )
        return item

    def _vector(self, name: str, size: int) -> Floats:
        found = self._file.floats.get(name)
        if found is None:
            self._missing(name)
        assert found is not None
        if found.size != size:
            raise ExportError(f"{self._file.path} has {found.size} numbers in {name}, where {size} are expected")
        return np.ascontiguousarray(found.reshape(-1), np.float32)

    def _missing(self, name: str) -> float:
        raise ExportError(f"{self._file.path} lacks {name}: it is not a student model of Firefox Translations")


def _bias_of(weight: str) -> str:
    head, _, letter = weight.rpartition("_W")
    return f"{head}_b{letter}"


def _padding(size: int) -> int:
    """Zero rows after the last piece: at least one, which begins translations."""
    return _ROWS_MULTIPLE - size % _ROWS_MULTIPLE


def positions(count: int, width: int) -> Floats:
    """Marian's sinusoids, [count, d]: all sines, then all cosines; the last rate is 1 / 10000."""
    half = width // 2
    rates = np.exp(np.arange(half, dtype=np.float32) * np.float32(-math.log(10000) / (half - 1)))
    angles = np.arange(count, dtype=np.float32)[:, None] * rates
    return np.concatenate([np.sin(angles), np.cos(angles)], -1).astype(np.float32)
