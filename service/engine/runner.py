"""Runs a bundle's graphs for the rows of one batch: add, step, keep. The only file that knows onnxruntime.

State is allocated once, for the largest batch. On the host it is NumPy memory: a step binds raw pointers to its first
rows, and `keep` copies the used part of the rows that moved. On a device it is OrtValues, with small graphs of the
bundle that place new rows and gather kept ones; that path runs on the CPU as well. Which rows exist, and what their
tokens mean, is left to `loop` and `search`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from service.bundles.manifest import DECODER, ENCODER, KEEP, PLACE, Bundle, BundleError, Precision, StateTensor
from service.engine.search import Candidates, Stretch

Provider = Literal["auto", "cpu", "cuda"]
Device = Literal["cpu", "cuda"]
Ints = npt.NDArray[np.int64]
_CUDA, _CPU = "CUDAExecutionProvider", "CPUExecutionProvider"
_ENCODE_TOKENS = 256  # of one encoder run: more is no faster, and pushes its activations out of the cache
_MAX_SHAPES = 128  # remembered by one runner, 14 kB each: 64 rows, greedy and with one beam size

logger = logging.getLogger(__name__)


def choose_device(wanted: Provider, precision: Precision, available: Sequence[str]) -> tuple[Device, str | None]:
    """The device to run on, and why it is not the one that was asked for."""
    if wanted == "cpu" or (wanted == "auto" and (precision == "int8" or _CUDA not in available)):
        return "cpu", None
    if precision == "int8":
        return "cpu", "an int8 bundle runs on the CPU only; export it with --precision fp16 for CUDA"
    if _CUDA not in available:
        return "cpu", f"this onnxruntime has no {_CUDA}; install the extra `gpu` instead of `cpu`"
    return "cuda", None


class OrtSessions:
    """A bundle's graphs, loaded once; several runners share them."""

    def __init__(self, bundle: Bundle, threads: int = 1, provider: Provider = "auto") -> None:
        self.bundle, self.threads = bundle, threads
        self.device, warning = choose_device(provider, bundle.precision, ort.get_available_providers())
        self.encoder = self.load(ENCODER)
        if self.device == "cuda" and _CUDA not in self.encoder.get_providers():
            # The runtime tells its own reason in its log, and goes on without the device.
            self.device, warning = "cpu", "CUDA did not start; onnxruntime's log says why"
        if warning is not None:
            logger.warning("bundle %s runs on the CPU: %s", bundle.name, warning)
        self.decoder = self.load(DECODER)
        self.takes_lengths = any(value.name == "source_lengths" for value in self.encoder.get_inputs())

    def load(self, name: str) -> ort.InferenceSession:
        providers = [_CUDA, _CPU] if self.device == "cuda" else [_CPU]
        try:
            return ort.InferenceSession(str(self.bundle.file(name)), self._options(), providers=providers)
        except Exception as error:  # the runtime's exceptions have no common base below this one
            reason = " ".join(str(error).split())
            raise BundleError(
                f"onnxruntime {ort.__version__} cannot load {name} of bundle {self.bundle.path} ({reason}): "
                "upgrade onnxruntime or export the bundle again"
            ) from error

    def _options(self) -> ort.SessionOptions:
        options = ort.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = self.threads, 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        # The runtime otherwise remembers a memory plan for every shape it meets, and grows.
        options.enable_mem_pattern = False
        # Graphs come as they should run: higher levels fuse norms into a slower operator and move roundings about.
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.add_session_config_entry("session.disable_quant_qdq", "1")
        options.log_severity_level = 3
        return options


class _Move(NamedTuple):
    """A row takes another's place: these slots of its own caches, and of its cross caches if the source changes.

    Rows of one beam translate one source and often share their first tokens: then what they share stays.
    """

    to: int
    parent: int
    first_slot: int
    end_slot: int
    source_slots: int  # 0: the same source


class _State(Protocol):
    """The arrays that live between steps, for at most max_rows rows."""

    num_bytes: int

    def encode(self, feeds: dict[str, Ints], rows: Sequence[int]) -> None:
        """Run the encoder, and fill the cross caches of these rows."""

    def bind(self, binding: ort.IOBinding, rows: int) -> None:
        """Give the decoder the first rows of everything, in and out."""

    def keep(self, parents: Ints, moves: Sequence[_Move]) -> bool:
        """Move rows; True when memory that was bound is no longer the state's."""


class _HostState:
    """NumPy memory; tensors of one kind lie together, so that a row's move is one copy for all of them."""

    def __init__(self, sessions: OrtSessions, sizes: dict[str, int]) -> None:
        self._encoder, self._tensors = sessions.encoder, sessions.bundle.state
        # Zeros, because what a mask hides is still multiplied, and 0 x NaN is NaN; written now, so that the process has
        # its full size before the first request.
        self._blocks = {
            kind: np.full((len(same), *_shape(same[0], sizes)), 0, same[0].dtype)
            for kind, same in _by_kind(self._tensors).items()
        }  # [tensors, rows, …]
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

    def bind(self, binding: ort.IOBinding, rows: int) -> None:
        for kind, same in _by_kind(self._tensors).items():
            for tensor, array in zip(same, self._blocks[kind][:, :rows], strict=True):
                _bind_array(binding.bind_input, tensor.name, array)
                if tensor.output is not None:
                    _bind_array(binding.bind_output, tensor.output, array)

    def keep(self, parents: Ints, moves: Sequence[_Move]) -> bool:
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


class _DeviceState:
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
            _bind_array(binding.bind_input, name, array)
        for tensor in cross:
            binding.bind_output(tensor.name, self._device)
        _run(self._encoder, binding)
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
        _run(self._place, binding)

    def bind(self, binding: ort.IOBinding, rows: int) -> None:
        for tensor in self._tensors:
            value = self._values[tensor.name]
            self._bind_rows(binding.bind_input, tensor.name, tensor, value, 0, rows)
            if tensor.output is not None:
                self._bind_rows(binding.bind_output, tensor.output, tensor, value, 0, rows)

    def keep(self, parents: Ints, moves: Sequence[_Move]) -> bool:
        changes_source = any(move.source_slots for move in moves)
        for tensor in self._tensors:
            if tensor.kind == "self" or changes_source:
                value, spare = self._values[tensor.name], self._spares[tensor.kind]
                binding = self._keep.io_binding()
                binding.bind_ortvalue_input("tensor", value)
                _bind_array(binding.bind_input, "parents", parents)
                self._bind_rows(binding.bind_output, "kept_tensor", tensor, spare, 0, len(parents))
                _run(self._keep, binding)
                self._values[tensor.name], self._spares[tensor.kind] = spare, value
        return True

    def _bind_rows(
        self, bind: Callable[..., None], name: str, tensor: StateTensor, value: ort.OrtValue, first: int, count: int
    ) -> None:
        shape, dtype = self._shapes[tensor.name][1:], np.dtype(tensor.dtype)
        offset = first * int(np.prod(shape)) * dtype.itemsize
        bind(name, self._device, 0, dtype.type, (count, *shape), value.data_ptr() + offset)


class _StepInputs:
    """What a step is told about each row, in memory that stays bound."""

    def __init__(self, max_rows: int, max_tokens: int) -> None:
        self.tokens = np.zeros((max_rows, 1), np.int64)
        self.wanted = np.zeros((max_rows, 1, 1), np.int64)
        self.positions = np.zeros((max_rows, 1), np.int32)  # tokens in the row's own cache
        self.source_ends = np.zeros((max_rows, 1), np.int32)
        self.sources = np.zeros(max_rows, np.int64)  # which source a row translates
        self.history = np.zeros((max_rows, max_tokens), np.int64)  # what beams were told, slot by slot
        self.numbers = np.arange(max_rows)
        self.k = np.zeros(1, np.int64)

    @property
    def num_bytes(self) -> int:
        return sum(array.nbytes for array in vars(self).values())

    def bind(self, binding: ort.IOBinding, rows: int) -> None:
        for name in ("tokens", "wanted", "positions", "source_ends"):
            _bind_array(binding.bind_input, name, getattr(self, name)[:rows])
        _bind_array(binding.bind_input, "k", self.k)

    def add(self, rows: Sequence[int], lengths: Sequence[int], first_source: int) -> None:
        for number, (row, length) in enumerate(zip(rows, lengths, strict=True), first_source):  # few, mostly one
            self.positions[row, 0] = 0
            self.source_ends[row, 0] = length - 1
            self.sources[row] = number

    def remember(self, rows: int) -> None:
        self.history[self.numbers[:rows], self.positions[:rows, 0]] = self.tokens[:rows, 0]

    def keep(self, parents: Ints, rows: int) -> list[_Move]:
        """Move what is known about the rows; the caches are to follow."""
        moved = np.flatnonzero(parents != self.numbers[: len(parents)])
        if not len(moved):
            return []
        old = parents[moved]
        same_source = (self.sources[old] == self.sources[moved]) & (moved < rows)
        ends = self.positions[old, 0]
        longest = max(1, int(ends.max()))
        differs = self.history[moved, :longest] != self.history[old, :longest]  # [moved, slots]
        differs[:, -1] = True  # at the latest
        self.history[moved, :longest] = self.history[old, :longest]
        first = np.where(same_source & (self.positions[moved, 0] == ends), differs.argmax(1), 0)
        source_slots = np.where(same_source, 0, self.source_ends[old, 0] + 1)
        for array in (self.positions, self.source_ends, self.sources):
            array[moved] = array[old]
        columns = (moved, old, first, ends, source_slots)
        return [_Move(*move) for move in zip(*(column.tolist() for column in columns), strict=True)]


class _StepOutputs:
    """Where a step writes its candidates: rows x k of them, packed at the front."""

    def __init__(self, max_rows: int, max_k: int) -> None:
        self.max_k = max_k
        self._ids = np.zeros(max_rows * max_k, np.int64)
        self._log_probs = np.zeros(max_rows * max_k, np.float32)
        self._wanted = np.zeros((max_rows, 1, 1), np.float32)
        self.num_bytes = self._ids.nbytes + self._log_probs.nbytes + self._wanted.nbytes

    def bind(self, binding: ort.IOBinding, rows: int, k: int) -> Candidates:
        """Returns the views that every step of this shape fills."""
        ids, log_probs = self._ids[: rows * k].reshape(rows, k), self._log_probs[: rows * k].reshape(rows, k)
        _bind_array(binding.bind_output, "ids", ids)
        _bind_array(binding.bind_output, "log_probs", log_probs)
        _bind_array(binding.bind_output, "wanted_log_probs", self._wanted[:rows])
        return Candidates(ids, log_probs, self._wanted[:rows, 0, 0])


class _Shape(NamedTuple):
    """Everything that steps of one shape, rows x k, have in common."""

    binding: ort.IOBinding
    tokens: Ints  # [rows]
    positions: npt.NDArray[np.int32]  # [rows, 1]
    candidates: Candidates
    candidates_only: Candidates  # without the wanted tokens' scores


class OrtRunner:
    """The rows of one batch, for one thread at a time. `state` is for tests: by default it follows the device."""

    def __init__(self, sessions: OrtSessions, max_rows: int, state: Literal["host", "device"] | None = None) -> None:
        bundle = sessions.bundle
        self.max_rows, self.max_source_tokens = max_rows, bundle.limits.max_source_tokens
        self._sessions, self._max_new_tokens = sessions, bundle.limits.max_new_tokens
        sizes = {"rows": max_rows, "source": self.max_source_tokens, "target": self._max_new_tokens}
        on_host = state == "host" or (state is None and sessions.device == "cpu")
        self._state: _State = _HostState(sessions, sizes) if on_host else _DeviceState(sessions, sizes)
        self._run = _run_on_host if on_host else _run
        self._inputs = _StepInputs(max_rows, self._max_new_tokens)
        self._outputs = _StepOutputs(max_rows, min(2 * max_rows, bundle.architecture.vocab_size))
        self._shapes: dict[tuple[int, int], _Shape] = {}
        self._num_rows = self._num_sources = self._longest = 0

    @property
    def num_rows(self) -> int:
        return self._num_rows

    @property
    def num_bytes(self) -> int:
        """All memory that this runner keeps for itself; it was allocated before the first request."""
        return self._state.num_bytes + self._inputs.num_bytes + self._outputs.num_bytes

    def add(self, sources: Sequence[Sequence[int]], rows: Sequence[int]) -> None:
        for source in sources:
            if not 0 < len(source) <= self.max_source_tokens:
                raise ValueError(f"a source has {len(source)} tokens; this bundle takes 1 to {self.max_source_tokens}")
        num_rows = max(self._num_rows, max(rows) + 1)
        assert num_rows <= self.max_rows, f"row {num_rows - 1}, but there is room for {self.max_rows}"
        lengths = [len(source) for source in sources]
        for batch in self._batches(lengths):
            self._state.encode(self._feeds([sources[i] for i in batch]), [rows[i] for i in batch])
        self._inputs.add(rows, lengths, self._num_sources)
        self._num_rows, self._num_sources = num_rows, self._num_sources + len(sources)

    def step(self, next_ids: Ints, k: int, wanted: Ints | None = None) -> Candidates:
        rows = len(next_ids)
        shape = self._shape_of(rows, k, steps=1)
        shape.tokens[:] = next_ids
        if wanted is not None:
            self._inputs.wanted[:rows, 0, 0] = wanted
        self._inputs.k[0] = k
        if k > 1:  # a beam may branch here; before, its rows are one
            self._inputs.remember(rows)
        self._run(self._sessions.decoder, shape.binding)
        np.add(shape.positions, 1, out=shape.positions)
        return shape.candidates_only if wanted is None else shape.candidates

    def stride(self, next_ids: Ints, most: int, go_on: Callable[[Ints], bool]) -> Stretch:
        rows, steps = len(next_ids), 0
        shape = self._shape_of(rows, 1, most)
        ids, log_probs = np.empty((most, rows), np.int64), np.empty((most, rows), np.float32)
        chosen, chosen_log_probs = shape.candidates.ids[:, 0], shape.candidates.log_probs[:, 0]  # [rows]
        self._inputs.k[0] = 1
        while True:
            shape.tokens[:] = next_ids
            self._run(self._sessions.decoder, shape.binding)
            np.add(shape.positions, 1, out=shape.positions)
            ids[steps], log_probs[steps] = chosen, chosen_log_probs
            next_ids, steps = chosen, steps + 1
            if steps == most or not go_on(chosen):
                break
        return Stretch(ids[:steps], log_probs[:steps])

    def keep(self, parents: Ints) -> None:
        count = len(parents)
        assert count <= self.max_rows
        moves = self._inputs.keep(parents, self._num_rows)
        if moves and self._state.keep(parents, moves):
            self._shapes.clear()
        self._num_rows = count

    def _shape_of(self, rows: int, k: int, steps: int) -> _Shape:
        """That of the next steps, for which there must be room."""
        assert 0 < rows <= self._num_rows, f"{rows} tokens for {self._num_rows} rows"
        self._longest += steps  # at most
        if self._longest > self._max_new_tokens:
            self._longest = int(self._inputs.positions[: self._num_rows].max()) + steps
            assert self._longest <= self._max_new_tokens, "a row goes on beyond the bundle's limit"
        return self._shapes.get((rows, k)) or self._bind(rows, k)

    def _batches(self, lengths: Sequence[int]) -> Iterator[list[int]]:
        """Which sources to encode together: those of one length, unless the graph takes lengths and hides padding."""
        groups: dict[int, list[int]] = {}
        for i, length in enumerate(lengths):
            groups.setdefault(0 if self._sessions.takes_lengths else length, []).append(i)
        for group in groups.values():
            size = max(1, _ENCODE_TOKENS // max(lengths[i] for i in group))
            for start in range(0, len(group), size):
                yield group[start : start + size]

    def _feeds(self, sources: Sequence[Sequence[int]]) -> dict[str, Ints]:
        if not self._sessions.takes_lengths:
            return {"source": np.array(sources, np.int64)}  # [B, S]
        lengths = np.array([len(source) for source in sources], np.int64)
        source = np.zeros((len(sources), int(lengths.max())), np.int64)
        for row, ids in enumerate(sources):
            source[row, : len(ids)] = ids
        return {"source": source, "source_lengths": lengths}

    def _bind(self, rows: int, k: int) -> _Shape:
        assert 0 < k <= self._outputs.max_k, f"{k} candidates, but at most {self._outputs.max_k}"
        if len(self._shapes) >= _MAX_SHAPES:
            del self._shapes[next(iter(self._shapes))]  # the oldest; binding it again costs less than a step
        binding = self._sessions.decoder.io_binding()
        self._inputs.bind(binding, rows)
        self._state.bind(binding, rows)
        candidates = self._outputs.bind(binding, rows, k)
        tokens, positions = self._inputs.tokens[:rows, 0], self._inputs.positions[:rows]
        shape = _Shape(binding, tokens, positions, candidates, candidates._replace(wanted_log_probs=None))
        self._shapes[rows, k] = shape
        return shape


def _shape(tensor: StateTensor, sizes: dict[str, int]) -> tuple[int, ...]:
    return tuple(size if isinstance(size, int) else sizes[size] for size in tensor.shape)


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


def _bind_array(bind: Callable[..., None], name: str, array: npt.NDArray[Any]) -> None:
    assert array.flags.c_contiguous
    bind(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)


def _run(session: ort.InferenceSession, binding: ort.IOBinding) -> None:
    binding.synchronize_inputs()
    session.run_with_iobinding(binding)
    binding.synchronize_outputs()


def _run_on_host(session: ort.InferenceSession, binding: ort.IOBinding) -> None:
    """Nothing to wait for: everything is where both sides see it."""
    session.run_with_iobinding(binding)
