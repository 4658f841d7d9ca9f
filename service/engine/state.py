"""The arrays that live between steps: filled by the encoder, appended to by the decoder, moved with their rows.

State is allocated once, for the largest batch. On the host it is NumPy memory: a step binds raw pointers to its first
rows, and `keep` copies the used part of the rows that moved. On a device it is OrtValues, with small graphs of the
bundle that place new rows and gather kept ones; that path runs on the CPU as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from dragoman.service.bundles.manifest import KEEP, PLACE, StateTensor
from dragoman.service.engine.sessions import OrtSessions, run_on_device

Ints = npt.NDArray[np.int64]


class Move(NamedTuple):
    """A row takes another's place: these slots of its own caches, and of its cross caches if the source changes.

    Rows of one beam translate one source and often share their first tokens: then what they share stays.
    """

    to: int
    parent: int
    first_slot: int
    end_slot: int
    source_slots: int  # 0: the same source


class State(Protocol):
    """The arrays that live between steps, for at most max_rows rows."""

    num_bytes: int

    def encode(self, feeds: dict[str, Ints], rows: Sequence[int]) -> None:
        """Run the encoder, and fill the cross caches of these rows."""

    def bind(self, binding: ort.IOBinding, rows: int, endings: Sequence[str] = ("",)) -> None:
        """Give the decoder the first rows of everything, in and out; of several steps, each names its own outputs."""

    def keep(self, parents: Ints, moves: Sequence[Move]) -> bool:
        """Move rows; True when memory that was bound is no longer the state's."""


class HostState:
    """NumPy memory; tensors of one kind lie together, so that a row's move is one copy for all of them."""

    def __init__(self, sessions: OrtSessions, sizes: dict[str, int], reserve: bool) -> None:
        """`reserve` writes all of it now, so that the process has its full size before the first request."""
        self._encoder, self._tensors = sessions.encoder, sessions.bundle.state
        # Zeros, because what a mask hides is still multiplied, and 0 x NaN is NaN.
        self._blocks = {
            kind: np.zeros((len(same), *_shape(same[0], sizes)), same[0].dtype)
            for kind, same in _by_kind(self._tensors).items()
        }  # [tensors, rows, …]
        for block in self._blocks.values() if reserve else ():
            block.fill(0)
        self.num_bytes = sum(block.nbytes for block in self._blocks.values())

    def encode(self, feeds: dict[str, Ints], rows: Sequence[int]) -> None:
        where, cross, last = _as_index(rows), self._blocks["cross"], self._blocks.get("last")
        heads, head_dim = cross.shape[2], cross.shape[4]
        for i, encoded in enumerate(self._encoder.run(None, feeds)):  # [B, S, d]
            batch, length, _ = encoded.shape
            split = encoded.reshape(batch, length, heads, head_dim)
            cross[i, where, :, :length] = split.swapaxes(1, 2)  # [B, H, S, dh]
            if last is not None:
                last[i, where, 0] = encoded[:, -1]

    def bind(self, binding: ort.IOBinding, rows: int, endings: Sequence[str] = ("",)) -> None:
        for kind, same in _by_kind(self._tensors).items():
            for tensor, array in zip(same, self._blocks[kind][:, :rows], strict=True):
                bind_array(binding.bind_input, tensor.name, array)
                for name in _outputs(tensor, endings):
                    bind_array(binding.bind_output, name, array)

    def keep(self, parents: Ints, moves: Sequence[Move]) -> bool:
        if not {move.to for move in moves}.isdisjoint(move.parent for move in moves):
            self._exchange(parents)
            return False
        own, cross, last = self._blocks["self"], self._blocks["cross"], self._blocks.get("last")
        for to, parent, first, end, source_slots in moves:
            own[:, to, :, first:end] = own[:, parent, :, first:end]
            if source_slots:
                cross[:, to, :, :source_slots] = cross[:, parent, :, :source_slots]
                if last is not None:
                    last[:, to] = last[:, parent]
        return False

    def _exchange(self, parents: Ints) -> None:
        """Rows that trade places: an index reads everything before anything is written."""
        for block in self._blocks.values():
            block[:, : len(parents)] = block[:, parents]


class DeviceState:
    """OrtValues on the provider's device; a spare of each kind takes what a gather keeps, and they change places."""

    def __init__(self, sessions: OrtSessions, sizes: dict[str, int]) -> None:
        self._encoder, self._tensors, self._device = sessions.encoder, sessions.bundle.state, sessions.device
        assert all(tensor.kind != "last" for tensor in self._tensors), "an int8 bundle keeps its state on the host"
        self._shapes = {tensor.name: _shape(tensor, sizes) for tensor in self._tensors}
        self._values = {tensor.name: self._allocate(tensor) for tensor in self._tensors}
        self._spares = {kind: self._allocate(same[0]) for kind, same in _by_kind(self._tensors).items()}
        self._keep, self._place = sessions.load(KEEP), sessions.load(PLACE)
        values = [*self._values.values(), *self._spares.values()]
        self.num_bytes = sum(value.tensor_size_in_bytes() for value in values)

    def _allocate(self, tensor: StateTensor) -> ort.OrtValue:
        return ort.OrtValue.ortvalue_from_numpy(np.zeros(self._shapes[tensor.name], tensor.dtype), self._device, 0)

    def encode(self, feeds: dict[str, Ints], rows: Sequence[int]) -> None:
        cross = [tensor for tensor in self._tensors if tensor.kind == "cross"]
        binding = self._encoder.io_binding()
        for name, array in feeds.items():
            bind_array(binding.bind_input, name, array)
        for tensor in cross:
            binding.bind_output(tensor.name, self._device)
        run_on_device(self._encoder, binding)
        for tensor, encoded in zip(cross, binding.get_outputs(), strict=True):
            for start, end in _neighbours(rows):
                self._fill(tensor, encoded, start, rows[start], end - start)

    def _fill(self, tensor: StateTensor, encoded: ort.OrtValue, start: int, first: int, count: int) -> None:
        """The cross caches of `count` rows from `first` on are what was encoded from `start` on."""
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
            value = self._values[tensor.name]
            self._bind_rows(binding.bind_input, tensor.name, tensor, value, 0, rows)
            for name in _outputs(tensor, endings):
                self._bind_rows(binding.bind_output, name, tensor, value, 0, rows)

    def keep(self, parents: Ints, moves: Sequence[Move]) -> bool:
        changes_source = any(move.source_slots for move in moves)
        for tensor in self._tensors:
            if tensor.kind == "self" or changes_source:
                value, spare = self._values[tensor.name], self._spares[tensor.kind]
                binding = self._keep.io_binding()
                binding.bind_ortvalue_input("tensor", value)
                bind_array(binding.bind_input, "parents", parents)
                self._bind_rows(binding.bind_output, "kept_tensor", tensor, spare, 0, len(parents))
                run_on_device(self._keep, binding)
                self._values[tensor.name], self._spares[tensor.kind] = spare, value
        return True

    def _bind_rows(
        self, bind: Callable[..., None], name: str, tensor: StateTensor, value: ort.OrtValue, first: int, count: int
    ) -> None:
        shape, dtype = self._shapes[tensor.name][1:], np.dtype(tensor.dtype)
        offset = first * int(np.prod(shape)) * dtype.itemsize
        bind(name, self._device, 0, dtype.type, (count, *shape), value.data_ptr() + offset)


def _shape(tensor: StateTensor, sizes: dict[str, int]) -> tuple[int, ...]:
    return tuple(size if isinstance(size, int) else sizes[size] for size in tensor.shape)


def _outputs(tensor: StateTensor, endings: Sequence[str]) -> list[str]:
    return [] if tensor.output is None else [f"{tensor.output}{ending}" for ending in endings]


def _by_kind(tensors: Sequence[StateTensor]) -> dict[str, list[StateTensor]]:
    kinds: dict[str, list[StateTensor]] = {}
    for tensor in tensors:
        kinds.setdefault(tensor.kind, []).append(tensor)
    return kinds


def _as_index(rows: Sequence[int]) -> slice | list[int]:
    """A slice where rows are neighbours: cheaper than a list."""
    first, end = rows[0], rows[0] + len(rows)
    return slice(first, end) if rows == list(range(first, end)) else list(rows)


def _neighbours(rows: Sequence[int]) -> list[tuple[int, int]]:
    """Where stretches of rows begin and end that follow one another."""
    breaks = [i for i in range(1, len(rows)) if rows[i] != rows[i - 1] + 1]
    return list(zip([0, *breaks], [*breaks, len(rows)], strict=True))


def bind_array(bind: Callable[..., None], name: str, array: npt.NDArray[Any]) -> None:
    assert array.flags.c_contiguous
    bind(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)
