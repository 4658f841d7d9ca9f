"""How the next token of a row is chosen: the interface, greedy search and forced prefixes.

Beam search is in `beam`. Another way to choose, such as sampling or a constraint, is another `TokenChooser`: `search`
gives it the jobs that follow it and calls it once for each step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from dragoman.service.engine.active_job import ActiveJob
from dragoman.service.engine.rows import Floats, Ints, Rows
from dragoman.service.engine.seams import Candidates


class Question(NamedTuple):
    """What the search asks of the runner's next step."""

    next_ids: Ints  # [rows]
    k: int  # candidates for each row
    wanted: Ints | None  # [rows], one token for each row whose log-probability is needed


class Choices(NamedTuple):
    """The next token of every row. Where rows branch, `parents[row]` is the row that each row goes on from."""

    tokens: Ints  # [rows], or [max_rows] where rows may branch
    log_probs: Floats  # [rows] or [max_rows]
    parents: Ints | None = None  # [max_rows]; None: every row goes on from itself

    def with_room(self, max_rows: int) -> Choices:
        """A copy that choosers may write to, with room for the rows that beams open."""
        room = max_rows - len(self.tokens)
        tokens = np.concatenate([self.tokens, np.zeros(room, np.int64)])  # [max_rows]
        return Choices(tokens, np.concatenate([self.log_probs, np.zeros(room, np.float32)]), self.parents)


class TokenChooser(Protocol):
    """Chooses the next tokens of all jobs that follow it, for all of their rows in one call."""

    def add(self, active: ActiveJob) -> None:
        """The job follows this chooser from the next step on."""

    def remove(self, active: ActiveJob) -> None:
        """The job no longer follows this chooser."""

    def ask(self, question: Question) -> Question:
        """The question with what this chooser needs added to it."""

    def choose(self, candidates: Candidates, choices: Choices) -> Choices:
        """The choices with those of its own rows written over; rows of other choosers stay as they are."""

    def finished(self) -> Sequence[ActiveJob]:
        """The jobs that are done with this chooser: they go on with their next one, or end."""


class Greedy:
    """Every row takes its best candidate.

    It answers for all rows of the batch, without a copy and before the other choosers, which write over their own rows.
    A greedy job ends with its row, so this chooser remembers no jobs.
    """

    def add(self, active: ActiveJob) -> None: ...

    def remove(self, active: ActiveJob) -> None: ...

    def ask(self, question: Question) -> Question:
        return question

    def best(self, candidates: Candidates) -> tuple[Ints, Floats]:
        """Tokens and log-probabilities, [rows] each: for steps in which no other chooser is in use."""
        return candidates.ids[:, 0], candidates.log_probs[:, 0]

    def choose(self, candidates: Candidates, choices: Choices | None = None) -> Choices:
        return Choices(*self.best(candidates))

    def finished(self) -> Sequence[ActiveJob]:
        return ()


class ForcedPrefixes:
    """A job's first row takes the tokens of its prefix, with the log-probabilities that the model gives them."""

    def __init__(self, rows: Rows, eos_id: int) -> None:
        self._rows, self._eos_id = rows, eos_id
        self._jobs: list[ActiveJob] = []

    def add(self, active: ActiveJob) -> None:
        self._jobs.append(active)

    def remove(self, active: ActiveJob) -> None:
        self._jobs.remove(active)

    def ask(self, question: Question) -> Question:
        wanted = np.full(self._rows.count, self._eos_id)  # [rows]; any token will do for the other rows
        for active in self._jobs:
            wanted[active.rows[0]] = self._token(active)
        return Question(question.next_ids, question.k, wanted)

    def choose(self, candidates: Candidates, choices: Choices) -> Choices:
        assert candidates.wanted_log_probs is not None, "a runner must score the tokens that it is asked about"
        for active in self._jobs:
            row = active.rows[0]
            choices.tokens[row] = self._token(active)
            choices.log_probs[row] = candidates.wanted_log_probs[row]
        return choices

    def finished(self) -> Sequence[ActiveJob]:
        """The jobs whose row has reached the end of its prefix."""
        return [each for each in self._jobs if self._rows.length(each.rows[0]) == len(each.job.options.prefix_ids)]

    def _token(self, active: ActiveJob) -> int:
        return active.job.options.prefix_ids[self._rows.length(active.rows[0])]
