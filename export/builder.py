"""Build ONNX graphs node by node, with one file for the weights of all graphs of a bundle."""

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from dragoman.service.bundles.manifest import WEIGHTS

Array = npt.NDArray[Any]
OPSET, IR_VERSION = 24, 11
MICROSOFT = "com.microsoft"
_ALIGNMENT = 64  # a cache line; the runtime maps the file and reads the tensors in place


class WeightFile:
    """Tensors of several graphs in one file; equal tensors are stored once."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._offsets: dict[tuple[str, bytes], int] = {}

    def tensor(self, name: str, array: Array) -> onnx.TensorProto:
        data = np.ascontiguousarray(array).tobytes()
        key = (array.dtype.str, hashlib.sha256(data).digest())
        if key not in self._offsets:
            self._data += bytes(-len(self._data) % _ALIGNMENT)
            self._offsets[key] = len(self._data)
            self._data += data
        tensor = TensorProto(
            name=name, data_type=helper.np_dtype_to_tensor_dtype(array.dtype), data_location=TensorProto.EXTERNAL
        )
        tensor.dims.extend(array.shape)
        for field, value in (("location", WEIGHTS), ("offset", self._offsets[key]), ("length", len(data))):
            tensor.external_data.add(key=field, value=str(value))
        return tensor

    def to_bytes(self) -> bytes:
        return bytes(self._data)


class GraphBuilder:
    """Nodes, constants, inputs and outputs in the order of the calls; the same calls give the same bytes."""

    def __init__(self, name: str, weights: WeightFile) -> None:
        self._name, self._weights = name, weights
        self._nodes: list[onnx.NodeProto] = []
        self._initializers: dict[str, onnx.TensorProto] = {}
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []
        self._count = 0

    def node(self, kind: str, inputs: Sequence[str], domain: str = "", **attributes: Any) -> str:
        return self.nodes(kind, inputs, [self._fresh()], domain, **attributes)[0]

    def nodes(
        self, kind: str, inputs: Sequence[str], outputs: int | Sequence[str], domain: str = "", **attributes: Any
    ) -> list[str]:
        names = [self._fresh() for _ in range(outputs)] if isinstance(outputs, int) else list(outputs)
        self._nodes.append(helper.make_node(kind, inputs, names, domain=domain, **attributes))
        return names

    def weight(self, name: str, array: Array) -> str:
        """A tensor in the weight file."""
        if name not in self._initializers:
            self._initializers[name] = self._weights.tensor(name, array)
        return name

    def constant(self, value: object, dtype: npt.DTypeLike) -> str:
        """A small tensor in the graph itself, named by its content."""
        array = np.array(value, dtype)
        name = f"{array.dtype}:{'x'.join(map(str, array.shape))}:{','.join(map(str, array.ravel().tolist()))}"
        self._initializers.setdefault(name, numpy_helper.from_array(array, name))
        return name

    def input(self, name: str, dtype: npt.DTypeLike, *shape: int | str) -> str:
        self._inputs.append(_value(name, dtype, shape))
        return name

    def output(self, name: str, dtype: npt.DTypeLike, *shape: int | str) -> None:
        self._outputs.append(_value(name, dtype, shape))

    def model(self) -> onnx.ModelProto:
        initializers = list(self._initializers.values())
        graph = helper.make_graph(self._nodes, self._name, self._inputs, self._outputs, initializers)
        domains = sorted({node.domain for node in self._nodes} | {""})
        opsets = [helper.make_opsetid(domain, 1 if domain else OPSET) for domain in domains]
        return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="dragoman")

    def _fresh(self) -> str:
        self._count += 1
        return f"t{self._count}"


def _value(name: str, dtype: npt.DTypeLike, shape: Sequence[int | str]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), list(shape))
