"""Explains a translation: runs the explain graph over a finished one, and shows a beam search as a tree.

The graph reads source and translation in one teacher-forced pass and gives attention and intermediate numbers. The tree
is the real search, run again on a few rows of its own by a runner that records every step. Which translation to explain
is decided by `service.translation.explanations`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from dragoman.service.bundles.manifest import EXPLAIN
from dragoman.service.engine.job import DecodingOptions, DecodingRules, Hypothesis, Job
from dragoman.service.engine.loop import Engine
from dragoman.service.engine.rows import Ints
from dragoman.service.engine.seams import Candidates, MultiStep, Runner, multi_step_by_steps

if TYPE_CHECKING:
    from dragoman.service.engine.sessions import OrtSessions

Array = npt.NDArray[Any]
Prefix = tuple[int, ...]  # target tokens from the first on, without bos
NodeState = Literal["root", "live", "dropped", "cut", "finished", "unfinished"]


class ExplainSession(Protocol):
    """A loaded explain graph; an onnxruntime session is one."""

    def run(self, output_names: Sequence[str], input_feed: Mapping[str, Array]) -> Sequence[Array]: ...


@dataclass(frozen=True)
class TreeNode:
    """A token that the search considered: it went on, was dropped from the beam, or never entered it."""

    parent: int | None  # index of its parent in the list of nodes; parents come first
    step: int  # 1 for the first token
    token: int
    log_prob: float
    total: float  # sum of log-probabilities from the first token to this one
    state: NodeState
    hypothesis: int | None = None  # rank in the n-best list that ends here


@dataclass(frozen=True)
class BeamTree:
    nodes: tuple[TreeNode, ...]
    hypotheses: tuple[Hypothesis, ...]  # best first: the n-best list
    num_steps: int


class Explainer:
    """Explains the translations of one bundle."""

    def __init__(self, session: ExplainSession, open_runner: Callable[[int], Runner], rules: DecodingRules) -> None:
        """`open_runner(rows)` gives a runner of its own with that many rows."""
        self._session, self._open_runner, self._rules = session, open_runner, rules

    def explain(self, source_ids: Prefix, target_ids: Prefix, k: int, names: Sequence[str]) -> dict[str, Array]:
        """The outputs `names` of the explain graph; `target_ids` are the generated tokens, with eos if any."""
        assert target_ids, "there are no tokens to explain"
        feeds = {
            "source": np.array([source_ids], np.int64),  # [1, S]
            "target": np.array([(self._rules.bos_id, *target_ids[:-1])], np.int64),  # [1, T]
            "labels": np.array(target_ids, np.int64)[:, None],  # [T, 1]
            "k": np.array([k], np.int64),
        }
        return dict(zip(names, self._session.run(list(names), feeds), strict=True))

    def beam_tree(self, source_ids: Prefix, options: DecodingOptions) -> BeamTree:
        """Runs the beam search of `options` again, and returns it as a tree."""
        recorder = _Recorder(self._open_runner(options.beam_size))
        engine = Engine([recorder], self._rules)
        job = Job(source_ids, replace(options, n_best=options.beam_size, log_probs=True))
        engine.submit(job)
        while not job.future.done():
            engine.turn()
        result = job.future.result()
        tree = _Tree(recorder.steps, options.beam_size)
        for rank, hypothesis in enumerate(result.hypotheses):
            tree.end(rank, hypothesis, self._rules.eos_id)
        return BeamTree(tuple(tree.nodes), result.hypotheses, len(recorder.steps))


def explainer_of(sessions: OrtSessions) -> Explainer:
    """The explainer of a bundle. It must not refer to the engine that serves the bundle, which may be unloaded."""
    from dragoman.service.engine.runner import OrtRunner

    return Explainer(sessions.load(EXPLAIN), lambda rows: OrtRunner(sessions, rows), DecodingRules.of(sessions.bundle))


class _Seen(NamedTuple):
    """The candidates that a step gave for one row."""

    prefix: Prefix
    ids: list[int]
    log_probs: list[float]


class _Recorder:
    """A runner that records the rows of every step and their candidates."""

    def __init__(self, runner: Runner) -> None:
        self.max_rows, self.max_source_tokens = runner.max_rows, runner.max_source_tokens
        self.steps: list[list[_Seen]] = []
        self._runner = runner
        self._rows: list[Prefix] = []  # with bos

    def add(self, sources: Sequence[Sequence[int]], rows: Sequence[int]) -> None:
        self._runner.add(sources, rows)
        self._rows += [()] * (max(rows) + 1 - len(self._rows))
        for row in rows:
            self._rows[row] = ()

    def step(self, next_ids: Ints, k: int, wanted: Ints | None = None) -> Candidates:
        candidates = self._runner.step(next_ids, k, wanted)
        self._rows = [(*row, int(token)) for row, token in zip(self._rows, next_ids, strict=True)]
        columns = zip(self._rows, candidates.ids.tolist(), candidates.log_probs.tolist(), strict=True)
        self.steps.append([_Seen(row[1:], ids, log_probs) for row, ids, log_probs in columns])
        return candidates

    def multi_step(self, next_ids: Ints, most: int, end_id: int, go_on: Callable[[int], bool]) -> MultiStep:
        return multi_step_by_steps(self, next_ids, most, end_id, go_on)

    def keep(self, parents: Ints) -> None:
        self._runner.keep(parents)
        self._rows = [self._rows[parent] for parent in parents]


class _Tree:
    """Makes nodes of the recorded steps: a row of one step is a candidate of the step before."""

    def __init__(self, steps: Sequence[Sequence[_Seen]], width: int) -> None:
        self.nodes = [TreeNode(None, 0, -1, 0.0, 0.0, "root")]
        self._places: dict[Prefix, int] = {(): 0}
        self._seen = {seen.prefix: seen for step in steps for seen in step}
        for step in steps:
            for seen in step:
                if seen.prefix:
                    self._add(seen.prefix, "live")
        for seen in [seen for step in steps for seen in step]:
            for token in seen.ids[:width]:
                if (*seen.prefix, token) not in self._places:
                    self._add((*seen.prefix, token), "cut")
        parents = {node.parent for node in self.nodes if node.state != "cut"}
        for place, node in enumerate(self.nodes):
            if node.state == "live" and place not in parents:
                self._change(place, "dropped")

    def end(self, rank: int, hypothesis: Hypothesis, eos_id: int) -> None:
        prefix = (*hypothesis.ids, eos_id) if hypothesis.finished else hypothesis.ids
        if prefix not in self._places:
            self._add(prefix, "cut")
        self._change(self._places[prefix], "finished" if hypothesis.finished else "unfinished", rank)
        for length in range(1, len(prefix)):
            if self.nodes[self._places[prefix[:length]]].state == "dropped":
                self._change(self._places[prefix[:length]], "live")

    def _add(self, prefix: Prefix, state: NodeState) -> None:
        parent, seen = self._places[prefix[:-1]], self._seen[prefix[:-1]]
        # An eos that the bundle's rules force is not among the runner's candidates; its probability is 1.
        log_prob = seen.log_probs[seen.ids.index(prefix[-1])] if prefix[-1] in seen.ids else 0.0
        self._places[prefix] = len(self.nodes)
        self.nodes.append(
            TreeNode(parent, len(prefix), prefix[-1], log_prob, self.nodes[parent].total + log_prob, state)
        )

    def _change(self, place: int, state: NodeState, rank: int | None = None) -> None:
        node = self.nodes[place]
        rank = node.hypothesis if rank is None else rank
        self.nodes[place] = TreeNode(node.parent, node.step, node.token, node.log_prob, node.total, state, rank)
