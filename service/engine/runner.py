"""Runs the graphs of a bundle for the rows of one batch: add, step, multi-step, keep.

`loop` and `search` decide which rows exist and what their tokens mean; `state` has the arrays between steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from dragoman.service.engine.rows import Ints
from dragoman.service.engine.seams import Candidates, MultiStep
from dragoman.service.engine.sessions import OrtSessions
from dragoman.service.engine.state import DeviceState, HostState, Move, State, bind_array

_ENCODE_TOKENS = 256  # in one encoder run: more is no faster, and its activations would not fit in the cache
_MAX_SHAPES = 128  # that one runner remembers, 14 kB each: enough for 64 rows, greedy and with one beam size


class _StepInputs:
    """The inputs of a step for each row, in memory that stays bound."""

    def __init__(self, max_rows: int, max_tokens: int) -> None:
        self.tokens = np.zeros((max_rows, 1), np.int64)
        self.wanted = np.zeros((max_rows, 1, 1), np.int64)
        self.positions = np.zeros((max_rows, 1), np.int32)  # tokens in the row's own cache
        self.source_ends = np.zeros((max_rows, 1), np.int32)
        self.sources = np.zeros(max_rows, np.int64)  # which source a row translates
        self.history = np.zeros((max_rows, max_tokens), np.int64)  # the tokens that beams were given, by position
        self.numbers = np.arange(max_rows)
        self.k = np.zeros(1, np.int64)

    @property
    def num_bytes(self) -> int:
        return sum(array.nbytes for array in vars(self).values())

    def bind(self, binding: ort.IOBinding, rows: int) -> None:
        for name in ("tokens", "wanted", "positions", "source_ends"):
            bind_array(binding.bind_input, name, getattr(self, name)[:rows])
        bind_array(binding.bind_input, "k", self.k)

    def add(self, rows: Sequence[int], lengths: Sequence[int], first_source: int) -> None:
        for number, (row, length) in enumerate(zip(rows, lengths, strict=True), first_source):  # mostly one row
            self.positions[row, 0] = 0
            self.source_ends[row, 0] = length - 1
            self.sources[row] = number

    def remember(self, rows: int) -> None:
        self.history[self.numbers[:rows], self.positions[:rows, 0]] = self.tokens[:rows, 0]

    def keep(self, parents: Ints, rows: int) -> list[Move]:
        """Move the inputs of the rows; returns how their state must move."""
        if not len(parents):
            return []
        moved = np.flatnonzero(parents != self.numbers[: len(parents)])
        if not len(moved):
            return []
        old = parents[moved]
        same_source = (self.sources[old] == self.sources[moved]) & (moved < rows)
        ends = self.positions[old, 0]
        longest = max(1, int(ends.max()))
        differs = self.history[moved, :longest] != self.history[old, :longest]  # [moved, positions]
        differs[:, -1] = True  # so that argmax finds a position in every row
        self.history[moved, :longest] = self.history[old, :longest]
        first = np.where(same_source & (self.positions[moved, 0] == ends), differs.argmax(1), 0)
        source_positions = np.where(same_source, 0, self.source_ends[old, 0] + 1)
        for array in (self.positions, self.source_ends, self.sources):
            array[moved] = array[old]
        columns = (moved, old, first, ends, source_positions)
        return [Move(*move) for move in zip(*(column.tolist() for column in columns), strict=True)]


class _StepOutputs:
    """Where a step writes its rows x k candidates, packed at the front."""

    def __init__(self, max_rows: int, max_k: int) -> None:
        self.max_k = max_k
        self._ids = np.zeros(max_rows * max_k, np.int64)
        self._log_probs = np.zeros(max_rows * max_k, np.float32)
        self._wanted = np.zeros((max_rows, 1, 1), np.float32)
        self.num_bytes = self._ids.nbytes + self._log_probs.nbytes + self._wanted.nbytes

    def bind(self, binding: ort.IOBinding, rows: int, k: int) -> Candidates:
        """Returns the views that every step of this shape writes to."""
        ids, log_probs = self._ids[: rows * k].reshape(rows, k), self._log_probs[: rows * k].reshape(rows, k)
        bind_array(binding.bind_output, "ids", ids)
        bind_array(binding.bind_output, "log_probs", log_probs)
        bind_array(binding.bind_output, "wanted_log_probs", self._wanted[:rows])
        return Candidates(ids, log_probs, self._wanted[:rows, 0, 0])


class _Shape(NamedTuple):
    """What all steps of one shape, rows x k, have in common."""

    binding: ort.IOBinding
    tokens: Ints  # [rows]
    positions: npt.NDArray[np.int32]  # [rows, 1]
    candidates: Candidates
    candidates_only: Candidates  # without the wanted tokens' scores
    greedy: _GreedyRun  # one step of the first row; used only in the shape of one row and one candidate


class _GreedyRun(NamedTuple):
    """One run of a graph that takes one or more greedy steps for a single row."""

    session: ort.InferenceSession
    binding: ort.IOBinding
    steps: int
    ids: Ints  # [steps]
    log_probs: npt.NDArray[np.float32]  # [steps]


class OrtRunner:
    """The rows of one batch, for one thread at a time. Tests choose the `state`; by default it follows the device."""

    def __init__(
        self,
        sessions: OrtSessions,
        max_rows: int,
        state: Literal["host", "device"] | None = None,
        reserve: bool = True,  # take all memory now, as a server should; otherwise as it is used
    ) -> None:
        bundle = sessions.bundle
        self.max_rows, self.max_source_tokens = max_rows, bundle.limits.max_source_tokens
        self._sessions, self._max_new_tokens = sessions, bundle.limits.max_new_tokens
        sizes = {"rows": max_rows, "source": self.max_source_tokens, "target": self._max_new_tokens}
        on_host = state == "host" or (state is None and sessions.device == "cpu")
        self._state: State = HostState(sessions, sizes, reserve) if on_host else DeviceState(sessions, sizes)
        self._run = self._state.run
        self._inputs = _StepInputs(max_rows, self._max_new_tokens)
        self._outputs = _StepOutputs(max_rows, min(max_rows + 1, bundle.architecture.vocab_size))
        self._shapes: dict[tuple[int, int], _Shape] = {}
        self._several: _GreedyRun | None = None  # steps in one run, once it is bound
        self._num_rows = self._num_sources = self._longest = 0

    @property
    def num_rows(self) -> int:
        return self._num_rows

    @property
    def num_bytes(self) -> int:
        """All memory of this runner itself; it is allocated before the first request."""
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
        if k > 1:  # a beam may branch from here on
            self._inputs.remember(rows)
        self._run(self._sessions.decoder, shape.binding, rows)
        np.add(shape.positions, 1, out=shape.positions)
        return shape.candidates_only if wanted is None else shape.candidates

    def multi_step(self, next_ids: Ints, most: int, end_id: int, go_on: Callable[[int], bool]) -> MultiStep:
        rows, done = len(next_ids), 0
        shape = self._shape_of(rows, 1, most)
        self._inputs.k[0] = 1
        if rows == 1:
            return self._multi_step_alone(shape, int(next_ids[0]), most, end_id, go_on)
        ids, log_probs = np.empty((most, rows), np.int64), np.empty((most, rows), np.float32)
        chosen = shape.candidates.ids[:, 0]  # [rows]
        while True:
            shape.tokens[:] = next_ids
            self._run(self._sessions.decoder, shape.binding, rows)
            np.add(shape.positions, 1, out=shape.positions)
            ids[done], log_probs[done] = chosen, shape.candidates.log_probs[:, 0]
            next_ids, done = chosen, done + 1
            if not go_on(1) or end_id in chosen.tolist() or done == most:
                return MultiStep(ids[:done], log_probs[:done])

    def _multi_step_alone(
        self, shape: _Shape, token: int, most: int, end_id: int, go_on: Callable[[int], bool]
    ) -> MultiStep:
        """A row alone takes several steps in each run. Plain numbers: arrays of one element cost more than the run."""
        ids: list[int] = []
        log_probs: list[float] = []
        several, position = self._several_steps(), int(shape.positions[0, 0])
        while True:
            shape.tokens[0], shape.positions[0, 0] = token, position + len(ids)
            run = shape.greedy if several is None or several.steps > most - len(ids) else several
            self._run(run.session, run.binding, 1)
            chosen = run.ids.tolist()
            ended = end_id in chosen
            steps = chosen.index(end_id) + 1 if ended else run.steps
            ids += chosen[:steps]
            log_probs += run.log_probs.tolist()[:steps]
            token = ids[-1]
            if not go_on(run.steps) or ended or len(ids) == most:
                shape.positions[0, 0] = position + len(ids)
                return MultiStep(np.array(ids)[:, None], np.array(log_probs, np.float32)[:, None])

    def keep(self, parents: Ints) -> None:
        count = len(parents)
        assert count <= self.max_rows
        moves = self._inputs.keep(parents, self._num_rows)
        if moves and self._state.keep(parents, moves):
            self._shapes.clear()
            self._several = None
        self._num_rows = count

    def _shape_of(self, rows: int, k: int, steps: int) -> _Shape:
        """The shape of the next steps, after a check that there is room for them."""
        assert 0 < rows <= self._num_rows, f"{rows} tokens for {self._num_rows} rows"
        self._longest += steps  # an upper bound; exact only when it reaches the limit
        if self._longest > self._max_new_tokens:
            self._longest = int(self._inputs.positions[: self._num_rows].max()) + steps
            assert self._longest <= self._max_new_tokens, "a row goes on beyond the bundle's limit"
        return self._shapes.get((rows, k)) or self._bind(rows, k)

    def _several_steps(self) -> _GreedyRun | None:
        """Only for a row alone: among several rows one ends too often, and the steps of the others would be lost."""
        if self._several is None and self._sessions.multi_step is not None:
            self._several = self._bind_several(self._sessions.multi_step)
        return self._several

    def _batches(self, lengths: Sequence[int]) -> Iterator[list[int]]:
        """Which sources to encode together: those of the same length, or any if the graph masks padding."""
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
            del self._shapes[next(iter(self._shapes))]  # the oldest: to bind it again costs less than a step
        binding = self._sessions.decoder.io_binding()
        self._inputs.bind(binding, rows)
        self._state.bind(binding, rows)
        candidates = self._outputs.bind(binding, rows, k)
        tokens, positions = self._inputs.tokens[:rows, 0], self._inputs.positions[:rows]
        candidates_only = candidates._replace(wanted_log_probs=None)
        greedy = _GreedyRun(self._sessions.decoder, binding, 1, candidates.ids[0, :1], candidates.log_probs[0, :1])
        shape = _Shape(binding, tokens, positions, candidates, candidates_only, greedy)
        self._shapes[rows, k] = shape
        return shape

    def _bind_several(self, session: ort.InferenceSession) -> _GreedyRun:
        steps = sum(output.name.startswith("ids.") for output in session.get_outputs())
        endings = [f".{step}" for step in range(steps)]
        binding = session.io_binding()
        for name in ("tokens", "positions", "source_ends"):
            bind_array(binding.bind_input, name, getattr(self._inputs, name)[:1])
        self._state.bind(binding, 1, endings)
        run = _GreedyRun(session, binding, steps, np.zeros(steps, np.int64), np.zeros(steps, np.float32))
        for step, ending in enumerate(endings):
            bind_array(binding.bind_output, f"ids{ending}", run.ids[step : step + 1, None])
            bind_array(binding.bind_output, f"log_probs{ending}", run.log_probs[step : step + 1, None])
        return run
