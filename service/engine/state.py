"""The arrays that live between steps: written by the encoder, changed by the decoder, moved with their rows.

The bundle describes each array (see `StateTensor`), and nothing else is known of them here. All of them are allocated
once, for the largest batch. On the host they are NumPy memory: a step binds pointers to their first rows, and `keep`
copies the used part of the rows that moved. On a device they are OrtValues, and small graphs of the bundle fill new
rows and gather the rows that are kept; this way runs on the CPU as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from dragoman.service.bundles.manifest import KEEP, PLACE, StateTensor
from dragoman.service.engine.rows import Ints
from dragoman.service.engine.sessions import OrtSessions, run_on_device

Array = npt.NDArray[Any]


class Move(NamedTuple):
    """A row takes the place of another: which positions of its arrays must be copied.

    Rows of one beam translate one source and often share their first tokens: what they share is not copied.
    """

    to: int
    parent: int
    first_position: int  # of the arrays that grow
    end_position: int
    source_positions: int  # of the arrays that the encoder wrote; 0: the same source


class State(Protocol):
    """The arrays that live between steps, for at most max_rows rows."""

    num_bytes: int

    def encode(self, feeds: dict[str, Ints], rows: Sequence[int]) -> None:
        """Run the encoder for new rows, and give their arrays the values that they begin with."""

    def bind(self, binding: ort.IOBinding, rows: int, endings: Sequence[str] = ("",)) -> None:
        """Bind the first rows of all arrays to a decoder graph; a multi-step graph names its outputs step by step."""

    def run(self, session: ort.InferenceSession, binding: ort.IOBinding, rows: int) -> None:
        """Run a decoder graph whose arrays `bind` bound for this number of rows."""

    def keep(self, parents: Ints, moves: Sequence[Move]) -> bool:
        """Move rows; True when arrays that were bound are no longer in use."""


class HostState:
    """NumPy memory. Tensors of the same kind and shape lie in one block: one copy moves a row of all of them."""

    def __init__(self, sessions: OrtSessions, sizes: dict[str, int], reserve: bool) -> None:
        """`reserve` writes all of it now, so that the process has its full size before the first request."""
        self._encoder, self._tensors = sessions.encoder, sessions.bundle.state
        self._arrays: dict[str, Array] = {}  # [rows, …] by tensor
        self._written: dict[str, Array] = {}  # [rows, …] by tensor: where a step writes
        self._growing: list[Array] = []  # blocks as [rows, positions, tensors, …]
        self._encoded: list[Array] = []  # blocks as [rows, source positions, tensors, …]
        self._encoded_last: list[Array] = []  # blocks as [rows, tensors, …]
        self._replaced: list[tuple[Array, Array]] = []  # blocks [tensors, rows, …]: before and after a step
        self.num_bytes = 0
        for same in _alike(self._tensors):
            self._place(same, self._allocate((len(same), *_shape(same[0], sizes)), same[0].dtype, reserve), reserve)
        names = [tensor.encoder_output for tensor in self._tensors if tensor.encoder_output is not None]
        self._encoder_outputs = list(dict.fromkeys(names))
        self._filled = [
            (self._encoder_outputs.index(tensor.encoder_output), _by_position(tensor, self._arrays[tensor.name]))
            for tensor in self._tensors
            if tensor.encoder_output is not None and "source" in tensor.shape
        ]
        self._filled_last = [
            (self._encoder_outputs.index(tensor.encoder_output), self._arrays[tensor.name])
            for tensor in self._tensors
            if tensor.encoder_output is not None and "source" not in tensor.shape
        ]

    def _allocate(self, shape: tuple[int, ...], dtype: str, reserve: bool) -> Array:
        # Zeros, because what a mask hides is still multiplied, and 0 x NaN is NaN.
        block = np.zeros(shape, dtype)
        if reserve:
            block.fill(0)
        self.num_bytes += block.nbytes
        return block

    def _place(self, same: Sequence[StateTensor], block: Array, reserve: bool) -> None:
        written, by_row = block, np.moveaxis(block, 1, 0)  # [rows, tensors, …]
        match same[0].kind:
            case "grows":
                self._growing.append(_by_position(same[0], by_row, axes_before=1))
            case "encoded" if "source" in same[0].shape:
                self._encoded.append(_by_position(same[0], by_row, axes_before=1))
            case "encoded":
                self._encoded_last.append(by_row)
            case "replaced":
                # Memory of its own: a graph may still read the old value after it has written the new one.
                written = self._allocate(block.shape, same[0].dtype, reserve)
                self._replaced.append((block, written))
        for i, tensor in enumerate(same):
            self._arrays[tensor.name], self._written[tensor.name] = block[i], written[i]

    def encode(self, feeds: dict[str, Ints], rows: Sequence[int]) -> None:
        where = _as_index(rows)
        outputs = self._encoder.run(self._encoder_outputs, feeds)  # [B, S, width] each
        batch, length = feeds["source"].shape
        for i, array in self._filled:
            array[where, :length] = outputs[i].reshape(batch, length, *array.shape[2:])
        lengths = feeds.get("source_lengths")
        for i, array in self._filled_last:
            last = outputs[i][:, -1] if lengths is None else outputs[i][np.arange(batch), lengths - 1]  # [B, width]
            array[where] = last.reshape(batch, *array.shape[1:])
        for block, _ in self._replaced:
            block[:, where] = 0

    def bind(self, binding: ort.IOBinding, rows: int, endings: Sequence[str] = ("",)) -> None:
        for tensor in self._tensors:
            bind_array(binding.bind_input, tensor.name, self._arrays[tensor.name][:rows])
            for name in _outputs(tensor, endings):
                bind_array(binding.bind_output, name, self._written[tensor.name][:rows])

    def run(self, session: ort.InferenceSession, binding: ort.IOBinding, rows: int) -> None:
        """Nothing to wait for: everything is in memory that both sides see."""
        session.run_with_iobinding(binding)
        for before, after in self._replaced:
            before[:, :rows] = after[:, :rows]  # only of the rows that stepped: the others keep their value

    def keep(self, parents: Ints, moves: Sequence[Move]) -> bool:
        if not {move.to for move in moves}.isdisjoint(move.parent for move in moves):
            self._exchange(parents)
            return False
        for to, parent, first, end, source_positions in moves:
            for block in self._growing:
                block[to, first:end] = block[parent, first:end]
            for block, _ in self._replaced:
                block[:, to] = block[:, parent]
            if source_positions:
                for block in self._encoded:
                    block[to, :source_positions] = block[parent, :source_positions]
                for block in self._encoded_last:
                    block[to] = block[parent]
        return False

    def _exchange(self, parents: Ints) -> None:
        """Rows trade places: an index reads everything before anything is written."""
        by_row = [*self._growing, *self._encoded, *self._encoded_last]
        for block in [*by_row, *(np.moveaxis(before, 1, 0) for before, _ in self._replaced)]:
            block[: len(parents)] = block[parents]


class DeviceState:
    """OrtValues on the provider's device. A gather writes to a spare value, which then changes places with the old."""

    def __init__(self, sessions: OrtSessions, sizes: dict[str, int]) -> None:
        self._encoder, self._tensors, self._device = sessions.encoder, sessions.bundle.state, sessions.device
        self._encoded = [tensor for tensor in self._tensors if tensor.encoder_output is not None]
        assert all("source" in tensor.shape for tensor in self._encoded), "an int8 bundle keeps its state on the host"
        self._replaced = [tensor for tensor in self._tensors if tensor.kind == "replaced"]
        self._max_rows = sizes["rows"]
        self._shapes = {tensor.name: _shape(tensor, sizes) for tensor in self._tensors}
        self._values = {tensor.name: self._allocate(tensor) for tensor in self._tensors}
        self._written = self._values | {tensor.name: self._allocate(tensor) for tensor in self._replaced}
        self._zeros = {tensor.name: self._allocate(tensor) for tensor in self._replaced}
        self._spares = {_layout(same[0]): self._allocate(same[0]) for same in _alike(self._tensors)}
        self._keep, self._place = sessions.load(KEEP), sessions.load(PLACE)
        extra = [self._written[tensor.name] for tensor in self._replaced]
        values = [*self._values.values(), *extra, *self._zeros.values(), *self._spares.values()]
        self.num_bytes = sum(value.tensor_size_in_bytes() for value in values)

    def _allocate(self, tensor: StateTensor) -> ort.OrtValue:
        return ort.OrtValue.ortvalue_from_numpy(np.zeros(self._shapes[tensor.name], tensor.dtype), self._device, 0)

    def encode(self, feeds: dict[str, Ints], rows: Sequence[int]) -> None:
        binding = self._encoder.io_binding()
        for name, array in feeds.items():
            bind_array(binding.bind_input, name, array)
        for tensor in self._encoded:
            binding.bind_output(tensor.encoder_output, self._device)
        run_on_device(self._encoder, binding)
        for start, end in _neighbours(rows):
            for tensor, encoded in zip(self._encoded, binding.get_outputs(), strict=True):
                self._fill(tensor, encoded, start, rows[start], end - start)
            for tensor in self._replaced:
                none = np.zeros(end - start, np.int64)
                self._gather(tensor, self._zeros[tensor.name], none, self._values[tensor.name], rows[start])

    def _fill(self, tensor: StateTensor, encoded: ort.OrtValue, start: int, first: int, count: int) -> None:
        """The rows from `first` on take what was encoded from `start` on, `count` of each."""
        binding, value = self._place.io_binding(), self._values[tensor.name]
        shape, dtype = encoded.shape()[1:], np.dtype(tensor.dtype)  # S, d
        offset = start * int(np.prod(shape)) * dtype.itemsize
        address = encoded.data_ptr() + offset
        binding.bind_input("encoded", self._device, 0, dtype.type, (count, *shape), address)
        self._bind_rows(binding.bind_input, "tensor", tensor, value, first, count)
        self._bind_rows(binding.bind_output, "placed_tensor", tensor, value, first, count)
        run_on_device(self._place, binding)

    def bind(self, binding: ort.IOBinding, rows: int, endings: Sequence[str] = ("",)) -> None:
        for tensor in self._tensors:
            self._bind_rows(binding.bind_input, tensor.name, tensor, self._values[tensor.name], 0, rows)
            for name in _outputs(tensor, endings):
                self._bind_rows(binding.bind_output, name, tensor, self._written[tensor.name], 0, rows)

    def run(self, session: ort.InferenceSession, binding: ort.IOBinding, rows: int) -> None:
        run_on_device(session, binding)
        for tensor in self._replaced:
            self._gather(tensor, self._written[tensor.name], np.arange(rows), self._values[tensor.name])

    def keep(self, parents: Ints, moves: Sequence[Move]) -> bool:
        changes_source = any(move.source_positions for move in moves)
        for tensor in self._tensors:
            if tensor.kind != "encoded" or changes_source:
                value, spare = self._values[tensor.name], self._spares[_layout(tensor)]
                self._gather(tensor, value, parents, spare)
                self._values[tensor.name], self._spares[_layout(tensor)] = spare, value
                if tensor.kind != "replaced":
                    self._written[tensor.name] = spare
        return True

    def _gather(
        self, tensor: StateTensor, value: ort.OrtValue, parents: Ints, into: ort.OrtValue, first: int = 0
    ) -> None:
        """From `first` on, row j of `into` becomes row parents[j] of `value`."""
        binding = self._keep.io_binding()
        self._bind_rows(binding.bind_input, "tensor", tensor, value, 0, self._max_rows, flat=True)
        bind_array(binding.bind_input, "parents", parents)
        self._bind_rows(binding.bind_output, "kept_tensor", tensor, into, first, len(parents), flat=True)
        run_on_device(self._keep, binding)

    def _bind_rows(
        self,
        bind: Callable[..., None],
        name: str,
        tensor: StateTensor,
        value: ort.OrtValue,
        first: int,
        count: int,
        flat: bool = False,
    ) -> None:
        """`flat` is for the gather graph, which takes four dimensions but cares only about the first."""
        shape, dtype = self._shapes[tensor.name][1:], np.dtype(tensor.dtype)
        size = int(np.prod(shape))
        address = value.data_ptr() + first * size * dtype.itemsize
        bind(name, self._device, 0, dtype.type, (count, 1, 1, size) if flat else (count, *shape), address)


def _shape(tensor: StateTensor, sizes: dict[str, int]) -> tuple[int, ...]:
    return tuple(size if isinstance(size, int) else sizes[size] for size in tensor.shape)


def _outputs(tensor: StateTensor, endings: Sequence[str]) -> list[str]:
    """The outputs of all steps write in place, one after the other; of a replaced tensor only the last one counts."""
    if tensor.output is None:
        return []
    return [f"{tensor.output}{ending}" for ending in (endings[-1:] if tensor.kind == "replaced" else endings)]


def _layout(tensor: StateTensor) -> tuple[object, ...]:
    return tensor.kind, tensor.dtype, tensor.shape


def _alike(tensors: Sequence[StateTensor]) -> list[list[StateTensor]]:
    """Tensors in groups of the same layout."""
    groups: dict[tuple[object, ...], list[StateTensor]] = {}
    for tensor in tensors:
        groups.setdefault(_layout(tensor), []).append(tensor)
    return list(groups.values())


def _by_position(tensor: StateTensor, array: Array, axes_before: int = 0) -> Array:
    """A view whose second axis is the position in source or target; `axes_before` are between rows and the others."""
    axis = next(axis for axis, size in enumerate(tensor.shape) if size in ("source", "target"))
    return np.moveaxis(array, axis + axes_before, 1)


def _as_index(rows: Sequence[int]) -> slice | list[int]:
    """A slice where rows are neighbours: cheaper than a list."""
    first, end = rows[0], rows[0] + len(rows)
    return slice(first, end) if rows == list(range(first, end)) else list(rows)


def _neighbours(rows: Sequence[int]) -> list[tuple[int, int]]:
    """Where groups of consecutive rows begin and end."""
    breaks = [i for i in range(1, len(rows)) if rows[i] != rows[i - 1] + 1]
    return list(zip([0, *breaks], [*breaks, len(rows)], strict=True))


def bind_array(bind: Callable[..., None], name: str, array: Array) -> None:
    assert array.flags.c_contiguous
    bind(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)
