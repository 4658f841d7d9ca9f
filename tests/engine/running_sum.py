"""A bundle whose decoder carries one vector from step to step, replaced at every step: a running sum.

The graphs are real, and tiny. Every number in them is a small whole number or a fraction of a power of two, so that
`log_probs`, the same network as a plain loop in NumPy, gives the same bits.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from dragoman.export.graphs import keep_graph, place_graph
from dragoman.service.bundles.manifest import (
    DECODER,
    ENCODER,
    KEEP,
    PLACE,
    Architecture,
    Bundle,
    Limits,
    Pair,
    Rules,
    SpecialIds,
    StateTensor,
    TokenizerFiles,
)
from tests.engine.reverse_runner import BOS, EOS

VOCAB_SIZE = 16
LIMITS = Limits(max_source_tokens=12, max_new_tokens=40)
IDS = np.arange(VOCAB_SIZE)
TABLE = ((IDS[:, None] * 5 + IDS[None, :] * 3 + IDS[:, None] * IDS[None, :]) % 11).astype(np.float32)  # [V, V]
BIAS = (IDS * 5 % 16).astype(np.float32)  # [V]


def log_probs(source: tuple[int, ...], prefix: tuple[int, ...]) -> np.ndarray:
    """What the graphs compute for a source and the tokens so far, [V]."""
    encoded = np.array([(token * (IDS + 1)) % 16 for token in source], np.float32)  # [S, V]
    total = before = np.zeros(VOCAB_SIZE, np.float32)
    for token in (BOS, *prefix):
        before, total = total, total + TABLE[token]
    scores = total * 7 + before * 3 + BIAS + encoded[0] + encoded[-1]
    return (-(scores % 64) / 64 - 0.5).astype(np.float32)


def write_bundle(folder: Path, where: Literal["host", "device"]) -> Bundle:
    """`device`: only tensors of the shapes that the graphs which move rows on a device understand."""
    memory: tuple[int | str, ...] = ("rows", "source", VOCAB_SIZE)
    if where == "device":
        memory = ("rows", 1, "source", VOCAB_SIZE)
    state = [
        StateTensor("memory", "encoded", "float32", memory, None, "encoded"),
        StateTensor("total", "replaced", "float32", ("rows", VOCAB_SIZE), "total_out"),
        StateTensor("last_token", "replaced", "float32", ("rows", 1, 1), "last_token_out"),
    ]
    if where == "host":
        state.append(StateTensor("last", "encoded", "float32", ("rows", VOCAB_SIZE), None, "encoded"))
    models = {ENCODER: _encoder(), DECODER: _decoder(state)}
    models |= {KEEP: keep_graph("float32"), PLACE: place_graph("float32", 1, VOCAB_SIZE)}
    for name, model in models.items():
        (folder / name).write_bytes(model.SerializeToString())
    return Bundle(
        path=folder,
        name="sum",
        version="1",
        precision="fp32",
        pairs=(Pair("xx", "yy"),),
        architecture=Architecture(VOCAB_SIZE, VOCAB_SIZE, 1, 1, 1, 1, "pre", "sinusoidal", 64, share_layers=False),
        limits=LIMITS,
        tokenizer=TokenizerFiles("sentencepiece", {"model": "tokenizer.model"}),
        special_ids=SpecialIds(0, 1, BOS, EOS, ()),
        rules=Rules(),
        state=tuple(state),
        files={},
        evidence={},
        training={},
    )


def _encoder() -> object:
    """source [batch, source] -> encoded [batch, source, V]"""
    nodes = [
        helper.make_node("Unsqueeze", ["source", "axis"], ["column"]),
        helper.make_node("Mul", ["column", "numbers"], ["product"]),
        helper.make_node("Mod", ["product", "sixteen"], ["remainder"]),
        helper.make_node("Cast", ["remainder"], ["encoded"], to=TensorProto.FLOAT),
    ]
    constants = {"axis": np.array([2]), "numbers": IDS + 1, "sixteen": np.array(16)}
    inputs = [helper.make_tensor_value_info("source", TensorProto.INT64, ["batch", "source"])]
    outputs = [helper.make_tensor_value_info("encoded", TensorProto.FLOAT, ["batch", "source", VOCAB_SIZE])]
    return _model("encoder", nodes, inputs, outputs, constants)


def _decoder(state: list[StateTensor]) -> object:
    """One step; it writes the new sum before it last reads the old one."""
    by_name = {tensor.name: tensor for tensor in state}
    nodes = [
        helper.make_node("Gather", ["table", "tokens"], ["row"]),  # [rows, 1, V]
        helper.make_node("Reshape", ["row", "flat"], ["embedded"]),  # [rows, V]
        helper.make_node("Add", ["total", "embedded"], ["total_out"]),
        helper.make_node("Gather", ["memory", "zero"], ["first"], axis=by_name["memory"].shape.index("source")),
        helper.make_node("Reshape", ["first", "flat"], ["first_flat"]),  # [rows, V]
        helper.make_node("Mul", ["total_out", "seven"], ["new"]),
        helper.make_node("Mul", ["total_out", "nought"], ["nothing"]),  # only so that the old sum is read afterwards
        helper.make_node("Add", ["total", "nothing"], ["total_again"]),
        helper.make_node("Mul", ["total_again", "three"], ["old"]),
        helper.make_node("Add", ["new", "old"], ["sums"]),
        helper.make_node("Add", ["sums", "first_flat"], ["with_first"]),
        helper.make_node("Add", ["with_first", "last_or_bias"], ["with_last"]),
        helper.make_node("Add", ["with_last", "bias"], ["scores"]),
        helper.make_node("Mod", ["scores", "sixty_four"], ["remainder"], fmod=1),
        helper.make_node("Div", ["remainder", "minus_sixty_four"], ["negative"]),
        helper.make_node("Sub", ["negative", "half"], ["all"]),  # [rows, V]
        helper.make_node("TopK", ["all", "k"], ["log_probs", "ids"], axis=1),
        helper.make_node("Squeeze", ["wanted", "axis"], ["columns"]),
        helper.make_node("GatherElements", ["all", "columns"], ["of_wanted"], axis=1),
        helper.make_node("Unsqueeze", ["of_wanted", "axis"], ["wanted_log_probs"]),
        helper.make_node("Cast", ["tokens"], ["token"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["token", "axis"], ["last_token_out"]),
    ]
    if "last" in by_name:
        nodes.insert(0, helper.make_node("Identity", ["last"], ["last_or_bias"]))
    else:  # the last position by a gather of its own
        nodes[:0] = [
            helper.make_node("Reshape", ["memory", "by_position"], ["positions_of_source"]),  # [rows, source, V]
            helper.make_node("Cast", ["source_ends"], ["ends"], to=TensorProto.INT64),  # [rows, 1]
            helper.make_node("GatherND", ["positions_of_source", "ends"], ["last_or_bias"], batch_dims=1),  # [rows, V]
        ]
    constants = {
        "table": TABLE,
        "bias": BIAS,
        "flat": np.array([-1, VOCAB_SIZE]),
        "by_position": np.array([-1, LIMITS.max_source_tokens, VOCAB_SIZE]),
        "axis": np.array([2]),
        "zero": np.array(0),
    }
    numbers = {"seven": 7, "three": 3, "sixty_four": 64, "minus_sixty_four": -64, "half": 0.5, "nought": 0}
    constants |= {name: np.array(number, np.float32) for name, number in numbers.items()}
    return _model("decoder", nodes, _decoder_inputs(state), _decoder_outputs(state), constants)


def _decoder_inputs(state: list[StateTensor]) -> list:
    inputs = [
        helper.make_tensor_value_info("tokens", TensorProto.INT64, ["rows", 1]),
        helper.make_tensor_value_info("positions", TensorProto.INT32, ["rows", 1]),
        helper.make_tensor_value_info("source_ends", TensorProto.INT32, ["rows", 1]),
        helper.make_tensor_value_info("wanted", TensorProto.INT64, ["rows", 1, 1]),
        helper.make_tensor_value_info("k", TensorProto.INT64, [1]),
    ]
    return [*inputs, *(helper.make_tensor_value_info(t.name, TensorProto.FLOAT, t.shape) for t in state)]


def _decoder_outputs(state: list[StateTensor]) -> list:
    outputs = [
        helper.make_tensor_value_info("ids", TensorProto.INT64, ["rows", "k"]),
        helper.make_tensor_value_info("log_probs", TensorProto.FLOAT, ["rows", "k"]),
        helper.make_tensor_value_info("wanted_log_probs", TensorProto.FLOAT, ["rows", 1, 1]),
    ]
    own = [tensor for tensor in state if tensor.output is not None]
    return [*outputs, *(helper.make_tensor_value_info(t.output, TensorProto.FLOAT, t.shape) for t in own)]


def _model(name: str, nodes: list, inputs: list, outputs: list, constants: dict[str, np.ndarray]) -> object:
    tensors = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, name, inputs, outputs, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
