"""Two greedy steps of a decoder as one graph: the second goes on with the token that the first one chose.

A run of the runtime has a price of its own, so a sentence that is alone gets on faster by leaps. Every step reads the
caches from the graph's inputs and writes them to outputs of its own, `self_k0_out.0` and so on; the caller binds all of
them to the memory of the inputs. A step needs the token before it, which comes last, so it finds everything written.
"""

from collections.abc import Iterator

import numpy as np
import onnx
from onnx import helper, numpy_helper

LEAP_STEPS = 2  # of an odd number of tokens one is lost; a row that nobody waits for is let go within two steps
_ONE, _TOKENS, _POSITIONS, _CHOSEN = "one", "tokens", "positions", "ids"
_UNASKED_INPUTS, _UNASKED_OUTPUTS = {"wanted", "k"}, {"wanted_log_probs"}


def leap_graph(decoder: onnx.ModelProto, steps: int = LEAP_STEPS) -> onnx.ModelProto:
    """From a decoder-step graph: its inputs but `wanted` and `k`, its outputs with the step's number."""
    step = decoder.graph
    inputs = [value for value in step.input if value.name not in _UNASKED_INPUTS]
    outputs = [value for value in step.output if value.name not in _UNASKED_OUTPUTS]
    graph = onnx.GraphProto(name="leap", input=inputs, initializer=step.initializer)
    graph.initializer.append(numpy_helper.from_array(np.array([1], np.int64), _ONE))
    needed = list(_needed(step, {value.name for value in outputs}))
    shared = {"", *(value.name for value in inputs), *(tensor.name for tensor in step.initializer)}
    for number in range(steps):
        names = _inputs_of_step(graph, number)
        _append_step(graph, needed, names | {name: name for name in shared - names.keys()}, number)
        for value in outputs:
            graph.output.append(value)
            graph.output[-1].name = f"{value.name}.{number}"
    return helper.make_model(
        graph, opset_imports=decoder.opset_import, ir_version=decoder.ir_version, producer_name=decoder.producer_name
    )


def _needed(step: onnx.GraphProto, wanted: set[str]) -> Iterator[onnx.NodeProto]:
    """The nodes that these outputs come from, in order."""
    needed: list[onnx.NodeProto] = []
    for node in reversed(step.node):
        if not wanted.isdisjoint(node.output):
            needed.append(node)
            wanted |= set(node.input)
    return reversed(needed)


def _inputs_of_step(graph: onnx.GraphProto, number: int) -> dict[str, str]:
    """What the step reads instead of the token and the position that a single step is told."""
    if not number:
        return {"k": _ONE}
    ahead = numpy_helper.from_array(np.array(number, np.int32), f"ahead.{number}")
    graph.initializer.append(ahead)
    position = f"{_POSITIONS}.{number}"
    graph.node.append(helper.make_node("Add", [_POSITIONS, ahead.name], [position]))
    return {"k": _ONE, _TOKENS: f"{_CHOSEN}.{number - 1}", _POSITIONS: position}


def _append_step(graph: onnx.GraphProto, nodes: list[onnx.NodeProto], names: dict[str, str], number: int) -> None:
    for node in nodes:
        graph.node.append(node)
        copy = graph.node[-1]
        copy.input[:] = [names.get(name, f"{name}.{number}") for name in node.input]
        copy.output[:] = [f"{name}.{number}" if name else "" for name in node.output]
