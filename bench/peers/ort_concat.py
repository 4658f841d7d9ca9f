"""Plain ONNX Runtime, the way exporters of the Hugging Face family do it: an encoder, a decoder with past, and a loop.

Batches are padded, caches are new arrays that grow by concatenation, logits of the whole vocabulary come back to
Python, and a batch runs until its last sentence ends. Optimizations are the runtime's own; int8 is its dynamic
quantization. Greedy only: what a beam adds is reordering these caches once more.
"""

import logging
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import onnxruntime as ort
import torch
from onnxruntime.quantization import QuantType, quantize_dynamic
from torch import Tensor, nn

from bench.peers.peer import MAX_TOKENS, Ids, in_batches
from dragoman.model.batches import pad
from dragoman.model.tokenizer import BOS_ID, EOS_ID, PAD_ID
from dragoman.model.transformer import DecoderLayer, Transformer, attend, merge_heads

BATCHES = (16, 32, 64)
Array = npt.NDArray[Any]


class _Encoder(nn.Module):
    def __init__(self, network: Transformer) -> None:
        super().__init__()
        self.network = network

    def forward(self, source: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
        """source, mask [B, S] -> keys and values of every cross attention, [B, H, S, dh]"""
        memory = self.network.encode(source, mask[:, None, None, :])
        stack = self.network.decoder
        layers = [stack.layers[i % len(stack.layers)] for i in range(stack.depth)]
        return tuple(x for layer in layers for x in layer.cross_attention.key_value_heads(memory))


class _DecoderWithPast(nn.Module):
    def __init__(self, network: Transformer) -> None:
        super().__init__()
        self.network = network

    def forward(self, tokens: Tensor, position: Tensor, mask: Tensor, *caches: Tensor) -> tuple[Tensor, ...]:
        """tokens [B, 1], position [1], mask [B, S]; caches: of each layer self k, v [B, H, T, dh], then cross k, v

        -> logits [B, V], and the self caches, longer by one
        """
        stack, grown = self.network.decoder, list[Tensor]()
        table = self.network.position_table().index_select(0, position)
        x = self.network.embedding(tokens) * self.network.config.d_model**0.5 + table
        for i in range(stack.depth):
            past, cross = caches[2 * i : 2 * i + 2], caches[2 * (stack.depth + i) : 2 * (stack.depth + i) + 2]
            x, key, value = _step(stack.layers[i % len(stack.layers)], x, past, cross, mask[:, None, None, :])
            grown += [key, value]
        x = x if stack.norm is None else stack.norm(x)
        return self.network.logits(x[:, -1]), *grown


def _step(
    layer: DecoderLayer, x: Tensor, past: Sequence[Tensor], cross: Sequence[Tensor], mask: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    norm = layer.self_attention_norm
    query, key, value = layer.self_attention.heads(layer.before(norm, x))
    key, value = torch.cat([past[0], key], 2), torch.cat([past[1], value], 2)  # [B, H, T + 1, dh]
    x = layer.after(norm, x, layer.self_attention.out(merge_heads(attend(query, key, value))))
    norm = layer.cross_attention_norm
    x = layer.after(norm, x, layer.cross_attention(layer.before(norm, x), cross[0], cross[1], mask))
    norm = layer.feed_forward_norm
    return layer.after(norm, x, layer.feed_forward(layer.before(norm, x))), key, value


def export(network: Transformer, folder: Path) -> None:
    """encoder.onnx and decoder.onnx in fp32, and both in dynamic int8."""
    folder.mkdir(parents=True, exist_ok=True)
    depth, heads, head_dim = network.decoder.depth, network.config.num_heads, network.config.head_dim
    source, mask = torch.ones(2, 5, dtype=torch.long), torch.ones(2, 5, dtype=torch.bool)
    crossed = _names("cross", depth)
    wide = {name: {0: "batch", 2: "source"} for name in crossed}
    axes = {"source": {0: "batch", 1: "source"}, "mask": {0: "batch", 1: "source"}}
    _export(_Encoder(network), (source, mask), folder / "encoder.onnx", ["source", "mask"], crossed, axes | wide)
    caches = [torch.zeros(2, heads, length, head_dim) for length in (3, 5) for _ in range(2 * depth)]
    inputs = (torch.ones(2, 1, dtype=torch.long), torch.tensor([3]), mask, *caches)
    past, present = _names("past", depth), _names("present", depth)
    axes = {"tokens": {0: "batch"}, "mask": {0: "batch", 1: "source"}, "logits": {0: "batch"}} | wide
    axes |= {name: {0: "batch", 2: f"{name} length"} for name in past + present}
    names = ["tokens", "position", "mask", *past, *crossed]
    _export(_DecoderWithPast(network), inputs, folder / "decoder.onnx", names, ["logits", *present], axes)
    logging.disable(logging.WARNING)  # it recommends a preprocessing that concerns other networks
    try:
        for name in ("encoder", "decoder"):
            quantize_dynamic(folder / f"{name}.onnx", folder / f"{name}-int8.onnx", weight_type=QuantType.QInt8)
    finally:
        logging.disable(logging.NOTSET)


def _names(kind: str, depth: int) -> list[str]:
    return [f"{kind}_{letter}{i}" for i in range(depth) for letter in "kv"]


def _export(
    module: nn.Module,
    inputs: tuple[Tensor, ...],
    path: Path,
    names: list[str],
    outputs: list[str],
    axes: dict[str, dict[int, str]],
) -> None:
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the tracer: no shape here decides a branch, and the exporter is meant
        torch.onnx.export(
            module.eval(), inputs, path, input_names=names, output_names=outputs, dynamic_axes=axes, dynamo=False
        )


class OrtConcat:
    def __init__(
        self,
        network: Transformer,
        folder: Path,
        precision: Literal["fp32", "int8"] = "fp32",
        batch: int = 32,
        max_tokens: int = MAX_TOKENS,
    ) -> None:
        self.name = f"plain ONNX Runtime {precision}, batches of {batch}"
        self._batch, self._max_tokens, self._config = batch, max_tokens, network.config
        if not (folder / "decoder-int8.onnx").exists():
            export(network, folder)
        suffix = "" if precision == "fp32" else "-int8"
        self._encoder = _session(folder / f"encoder{suffix}.onnx")
        self._decoder = _session(folder / f"decoder{suffix}.onnx")
        depth = network.decoder.depth
        self._cross, self._past = _names("cross", depth), _names("past", depth)

    def translate_ids(self, sources: Sequence[Ids], beam_size: int) -> list[Ids]:
        assert beam_size == 1, "greedy only"
        found: list[Ids] = [[] for _ in sources]
        for batch in in_batches(sources, self._batch):
            for i, ids in zip(batch, self._greedy([sources[i] for i in batch]), strict=True):
                found[i] = ids
        return found

    def _greedy(self, sources: Sequence[Ids]) -> list[Ids]:
        source = pad(sources).numpy()  # [B, S]
        mask = source != PAD_ID
        crossed = self._encoder.run(None, {"source": source, "mask": mask})
        fixed = {"mask": mask, **dict(zip(self._cross, crossed, strict=True))}
        empty = np.zeros((len(sources), self._config.num_heads, 0, self._config.head_dim), np.float32)
        past: dict[str, Array] = dict.fromkeys(self._past, empty)
        tokens, ended = np.full((len(sources), 1), BOS_ID), np.zeros(len(sources), bool)
        steps: list[Array] = []
        while not ended.all() and len(steps) < self._max_tokens:
            feeds = {"tokens": tokens, "position": np.array([len(steps)]), **fixed, **past}
            logits, *grown = self._decoder.run(None, feeds)
            past = dict(zip(self._past, grown, strict=True))
            best = np.where(ended, PAD_ID, logits.argmax(-1))  # [B]
            ended |= best == EOS_ID
            steps.append(best)
            tokens = best[:, None]
        return [_until_end(row) for row in np.stack(steps, 1).tolist()]


def _until_end(row: list[int]) -> Ids:
    return row[: row.index(EOS_ID)] if EOS_ID in row else row


def _session(path: Path) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
