"""Greedy and beam search over the graphs of a bundle, as plain as possible: the exporter checks its graphs with it.

The service has its own runner and search, built for speed. This file shares neither, so the two check each other.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from dragoman.model.hypothesis import DEFAULT_ALPHA, Hypothesis, length_penalty
from dragoman.model.tokenizer import BOS_ID, EOS_ID
from dragoman.service.bundles.manifest import DECODER, ENCODER, LEAP, Limits, StateTensor

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
Arrays = dict[str, npt.NDArray[Any]]
Sources = Sequence[Sequence[int]]


@dataclass
class Trace:
    """One row: its tokens so far, their log-probabilities, and the smallest gap between first and second choice."""

    ids: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    smallest_gap: float = float("inf")
    eos_id: int = EOS_ID

    @property
    def finished(self) -> bool:
        return bool(self.ids) and self.ids[-1] == self.eos_id

    def hypothesis(self, alpha: float = DEFAULT_ALPHA) -> Hypothesis:
        score = sum(self.log_probs) / length_penalty(len(self.ids), alpha)
        return Hypothesis(self.ids[:-1] if self.finished else self.ids, self.log_probs, score, self.finished)

    def grown(self, token: int, log_prob: float) -> "Trace":
        return Trace([*self.ids, token], [*self.log_probs, log_prob], eos_id=self.eos_id)


class Beam(NamedTuple):
    """What a beam found, best first, and the smallest gap between two candidates, which rounding may swap."""

    hypotheses: list[Hypothesis]
    smallest_gap: float


class GraphDecoder:
    """Runs the graphs in a directory; every step reads and writes the first rows of whole arrays."""

    def __init__(
        self,
        directory: Path,
        state: Sequence[StateTensor],
        limits: Limits,
        threads: int = 1,
        bos_id: int = BOS_ID,
        eos_id: int = EOS_ID,
    ) -> None:
        self._state, self._limits, self._bos_id, self._eos_id = state, limits, bos_id, eos_id
        self._directory, self._threads = directory, threads
        self._encoder, self._decoder = (_session(directory / name, threads) for name in (ENCODER, DECODER))
        self._takes_lengths = any(value.name == "source_lengths" for value in self._encoder.get_inputs())

    @cached_property
    def _multi_step(self) -> ort.InferenceSession:
        return _session(self._directory / LEAP, self._threads)

    def greedy(self, sources: Sources, limits: Sequence[int], k: int = 2) -> list[Trace]:
        """All sources in one batch. The graph is asked for the k best tokens; the first is taken."""
        batch = _Batch(self._state, self._limits, *self._encode(sources))
        traces = [Trace(eos_id=self._eos_id) for _ in sources]
        live, tokens = list(range(len(sources))), np.full(len(sources), self._bos_id)
        while live:
            ids, log_probs = batch.step(self._decoder, tokens, k)
            for row, trace in enumerate(traces[i] for i in live):
                trace.ids.append(int(ids[row, 0]))
                trace.log_probs.append(float(log_probs[row, 0]))
                if k > 1:
                    trace.smallest_gap = min(trace.smallest_gap, float(log_probs[row, 0] - log_probs[row, 1]))
            kept = [r for r, i in enumerate(live) if not traces[i].finished and len(traces[i].ids) < limits[i]]
            batch.keep(np.array(kept, np.int64))
            live, tokens = [live[row] for row in kept], ids[kept, 0]
        return traces

    def alone(self, source: Sequence[int], limit: int) -> Trace:
        """One source by the multi-step graph, as the service decodes a source that is alone."""
        batch, trace = _Batch(self._state, self._limits, *self._encode([source])), Trace(eos_id=self._eos_id)
        while not trace.finished and len(trace.ids) < limit:
            last = trace.ids[-1] if trace.ids else self._bos_id
            for token, log_prob in batch.multi_step(self._multi_step, last):
                if not trace.finished and len(trace.ids) < limit:  # steps after the end do not count
                    trace = trace.grown(token, log_prob)
        return trace

    def beam(self, source: Sequence[int], limit: int, size: int) -> Beam:
        """One source, with the rules of the service's search."""
        batch = _Batch(self._state, self._limits, *self._encode([source] * size))
        batch.keep(np.array([0]))  # memory for the whole beam, which begins with one row
        live, done, smallest_gap = [Trace(eos_id=self._eos_id)], list[Trace](), float("inf")
        tokens = np.array([self._bos_id])
        for _ in range(limit):
            candidates = _candidates(live, *batch.step(self._decoder, tokens, 2 * size))[: 2 * size + 1]
            smallest_gap = min(smallest_gap, *(a.total - b.total for a, b in pairwise(candidates)))
            live, ended, parents = _advance(candidates[: 2 * size], size)
            done += ended
            if len(done) >= size:
                live = []
                break
            batch.keep(parents)
            tokens = np.array([trace.ids[-1] for trace in live])
        ranked = [sorted((t.hypothesis() for t in traces), key=lambda h: -h.score) for traces in (done, live)]
        return Beam((ranked[0] + ranked[1])[:size], smallest_gap)

    def _encode(self, sources: Sources) -> tuple[Arrays, Ints]:
        """The encoder's outputs by name, [batch, longest, d], and the sources' lengths."""
        names = [value.name for value in self._encoder.get_outputs()]
        lengths = np.array([len(source) for source in sources], np.int64)
        if self._takes_lengths:
            padded = np.zeros((len(sources), int(lengths.max())), np.int64)
            for row, source in enumerate(sources):
                padded[row, : len(source)] = source
            outputs = self._encoder.run(None, {"source": padded, "source_lengths": lengths})
            return dict(zip(names, outputs, strict=True)), lengths
        whole: list[Floats] = []
        for length in np.unique(lengths):
            rows = np.flatnonzero(lengths == length).tolist()
            parts = self._encoder.run(None, {"source": np.array([sources[row] for row in rows], np.int64)})
            whole = whole or [np.zeros((len(sources), int(lengths.max()), p.shape[-1]), p.dtype) for p in parts]
            for tensor, part in zip(whole, parts, strict=True):
                tensor[rows, :length] = part
        return dict(zip(names, whole, strict=True)), lengths


class _Batch:
    """The state of some rows; the decoder reads and writes it in place."""

    def __init__(self, state: Sequence[StateTensor], limits: Limits, encoded: Arrays, lengths: Ints) -> None:
        self._state, self._rows = state, len(lengths)
        self._positions = np.zeros((self._rows, 1), np.int32)
        self._source_ends = (lengths[:, None] - 1).astype(np.int32)
        sizes = {"rows": self._rows, "target": limits.max_new_tokens, "source": limits.max_source_tokens}
        self._arrays: dict[str, Floats] = {}
        for tensor in state:
            shape = [sizes[size] if isinstance(size, str) else size for size in tensor.shape]
            array = self._arrays[tensor.name] = np.zeros(shape, tensor.dtype)
            if tensor.encoder_output is not None and "source" in tensor.shape:
                split = encoded[tensor.encoder_output].reshape(self._rows, -1, shape[1], shape[3])  # [rows, S, H, dh]
                array[:, :, : split.shape[1]] = split.swapaxes(1, 2)
            elif tensor.encoder_output is not None:
                array[:, 0] = encoded[tensor.encoder_output][np.arange(self._rows), lengths - 1]  # [rows, d]

    def step(self, decoder: ort.InferenceSession, tokens: Ints, k: int) -> tuple[Ints, Floats]:
        rows = self._rows
        ids, log_probs, wanted = np.zeros((rows, k), np.int64), np.zeros((rows, k), "f4"), np.zeros((rows, 1, 1), "f4")
        asked: Arrays = {"wanted": np.zeros((rows, 1, 1), np.int64), "k": np.array([k])}
        results: Arrays = {"ids": ids, "log_probs": log_probs, "wanted_log_probs": wanted}
        self._run(decoder, tokens, asked, results, [""])
        return ids, log_probs

    def multi_step(self, session: ort.InferenceSession, token: int) -> list[tuple[int, float]]:
        """For one row, the token and log-probability of every step of one run."""
        endings = [value.name.removeprefix("ids") for value in session.get_outputs() if value.name.startswith("ids.")]
        ids, log_probs = np.zeros((len(endings), 1), np.int64), np.zeros((len(endings), 1), "f4")
        results: Arrays = {f"ids{ending}": ids[i : i + 1] for i, ending in enumerate(endings)}
        results |= {f"log_probs{ending}": log_probs[i : i + 1] for i, ending in enumerate(endings)}
        self._run(session, np.array([token]), {}, results, endings)
        return list(zip(ids[:, 0].tolist(), log_probs[:, 0].tolist(), strict=True))

    def _run(
        self, session: ort.InferenceSession, tokens: Ints, asked: Arrays, results: Arrays, endings: Sequence[str]
    ) -> None:
        """The cache outputs of every step, named by its ending, are bound to the memory of the caches."""
        rows, binding = self._rows, session.io_binding()
        caches = {name: array[:rows] for name, array in self._arrays.items()}
        grown = [t for t in self._state if t.output is not None and t.kind != "replaced"]
        outputs = {f"{tensor.output}{end}": caches[tensor.name] for tensor in grown for end in endings}
        # A graph may read the old value after it has written the new one. Of several steps only the last one counts.
        replaced = [tensor for tensor in self._state if tensor.kind == "replaced"]
        outputs |= {f"{tensor.output}{endings[-1]}": np.empty_like(caches[tensor.name]) for tensor in replaced}
        feeds: Arrays = {
            "tokens": np.ascontiguousarray(tokens).reshape(rows, 1),
            "positions": np.ascontiguousarray(self._positions),
            "source_ends": np.ascontiguousarray(self._source_ends),
            **asked,
            **caches,
        }
        for bind, arrays in ((binding.bind_input, feeds), (binding.bind_output, results | outputs)):
            for name, array in arrays.items():
                bind(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)
        session.run_with_iobinding(binding)
        for tensor in replaced:
            caches[tensor.name][:] = outputs[f"{tensor.output}{endings[-1]}"]
        self._positions = self._positions + len(endings)

    def keep(self, rows: Ints) -> None:
        used = {"target": int(self._positions.max()), "source": int(self._source_ends.max()) + 1}
        for tensor in self._state:
            array = self._arrays[tensor.name]
            slots = next((used[size] for size in tensor.shape if size in used), None)
            if slots is None:
                array[: len(rows)] = array[rows]
            else:
                array[: len(rows), :, :slots] = array[rows, :, :slots]
        self._rows, self._positions, self._source_ends = len(rows), self._positions[rows], self._source_ends[rows]


class _Candidate(NamedTuple):
    total: float
    row: int
    trace: Trace


def _candidates(live: list[Trace], ids: Ints, log_probs: Floats) -> list[_Candidate]:
    """The continuations of all rows, best first; ties by row, then by rank."""
    found = []
    for row, trace in enumerate(live):
        total = sum(trace.log_probs)
        for token, log_prob in zip(ids[row].tolist(), log_probs[row].tolist(), strict=True):
            found.append(_Candidate(total + log_prob, row, trace.grown(token, log_prob)))
    return sorted(found, key=lambda candidate: -candidate.total)  # stable


def _advance(candidates: list[_Candidate], size: int) -> tuple[list[Trace], list[Trace], Ints]:
    """Live traces, ended traces and the parents of the live ones.

    A candidate that ends within the first `size` is done; of the others, the best `size` go on."""
    following = [candidate for candidate in candidates if not candidate.trace.finished][:size]
    ended = [candidate.trace for candidate in candidates[:size] if candidate.trace.finished]
    return [c.trace for c in following], ended, np.array([c.row for c in following], np.int64)


def in_crowds(sources: Sources, rows: int) -> Iterator[list[int]]:
    """Indices in batches of similar length, so that short sources do not wait for long ones."""
    order = sorted(range(len(sources)), key=lambda i: len(sources[i]))
    for start in range(0, len(order), rows):
        yield order[start : start + rows]


def _session(path: Path, threads: int) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.enable_mem_pattern, options.log_severity_level = threads, False, 3
    # As the service loads them: see service.engine.sessions.
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
