"""The multi-step graph: two greedy steps of a decoder in one run, the second with the token that the first one chose.

Every run of ONNX Runtime has a fixed cost, so two steps a run make a sentence that is decoded alone faster. Each step
reads the caches from the graph's inputs and writes them to outputs of its own (`self_k0_out.0`, `self_k0_out.1`). The
caller binds all of these outputs to the memory of the inputs. A step needs the token of the step before, which is
computed last, so it always finds the caches written. A tensor that each step replaces is different: the second step
reads what the first one put out, and only the last value leaves the graph.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper

from dragoman.service.bundles.manifest import StateTensor

STEPS = 2  # an odd number of tokens wastes one step; a cancelled row ends within two steps
_ONE, _TOKENS, _POSITIONS, _CHOSEN = "one", "tokens", "positions", "ids"
_UNASKED_INPUTS, _UNASKED_OUTPUTS = {"wanted", "k"}, {"wanted_log_probs"}


def multi_step_graph(
    decoder: onnx.ModelProto, state: Sequence[StateTensor] = (), steps: int = STEPS
) -> onnx.ModelProto:
    """Of a decoder-step graph: its inputs without `wanted` and `k`; its outputs, named with the number of the step."""
    step = decoder.graph
    replaced = {tensor.name: str(tensor.output) for tensor in state if tensor.kind == "replaced"}
    inputs = [value for value in step.input if value.name not in _UNASKED_INPUTS]
    outputs = [value for value in step.output if value.name not in _UNASKED_OUTPUTS]
    graph = onnx.GraphProto(name="leap", input=inputs, initializer=step.initializer)
    graph.initializer.append(numpy_helper.from_array(np.array([1], np.int64), _ONE))
    needed = list(_needed(step, {value.name for value in outputs}))
    shared = {"", *(value.name for value in inputs), *(tensor.name for tensor in step.initializer)}
    for number in range(steps):
        names = _inputs_of_step(graph, number)
        if number:
            names |= {name: f"{output}.{number - 1}" for name, output in replaced.items()}
        _append_step(graph, needed, names | {name: name for name in shared - names.keys()}, number)
        left = [value for value in outputs if number == steps - 1 or value.name not in replaced.values()]
        for value in left:
            graph.output.append(value)
            graph.output[-1].name = f"{value.name}.{number}"
    return helper.make_model(
        graph, opset_imports=decoder.opset_import, ir_version=decoder.ir_version, producer_name=decoder.producer_name
    )


def _needed(step: onnx.GraphProto, wanted: set[str]) -> Iterator[onnx.NodeProto]:
    """The nodes that these outputs need, in order."""
    needed: list[onnx.NodeProto] = []
    for node in reversed(step.node):
        if not wanted.isdisjoint(node.output):
            needed.append(node)
            wanted |= set(node.input)
    return reversed(needed)


def _inputs_of_step(graph: onnx.GraphProto, number: int) -> dict[str, str]:
    """What a step reads in place of the inputs of a single step."""
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
