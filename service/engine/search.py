"""Pure NumPy: the candidates of a step in; next tokens, finished jobs and rows to keep out.

All jobs share the rows of one batch. `token_choice` and `beam` choose the tokens, with array operations for the whole
batch; Python looks only at rows that end, stream, are forced along a prefix or belong to a beam. A job sees only its
own rows, in its own order, so it gets the same result alone and in a crowd. `loop` and `scheduler` decide when to step,
and for which jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from dragoman.service.engine import repetition
from dragoman.service.engine.active_job import ActiveJob
from dragoman.service.engine.beam import BeamSearch
from dragoman.service.engine.hypotheses import Hypotheses
from dragoman.service.engine.job import DecodingRules, FinishReason, Hypothesis, Job
from dragoman.service.engine.rows import Ints, Rows
from dragoman.service.engine.seams import Candidates, MultiStep
from dragoman.service.engine.slots import Slots
from dragoman.service.engine.token_choice import ForcedPrefixes, Greedy, Question, TokenChooser


class FinishedJob(NamedTuple):
    """A job that left the batch; `num_tokens` counts those of its best hypothesis, with eos."""

    job: Job
    hypotheses: tuple[Hypothesis, ...]
    reason: FinishReason
    num_steps: int
    num_tokens: int


class Emission(NamedTuple):
    """Tokens of a streaming job that will not be taken back, with their log-probabilities."""

    job: Job
    tokens: list[tuple[int, float]]


class Advance(NamedTuple):
    """The result of a step: tokens to stream, and jobs that finished."""

    emissions: list[Emission]
    finished: list[FinishedJob]


class Search:
    """The decoding state of one batch."""

    def __init__(self, rules: DecodingRules, max_rows: int) -> None:
        self.rules = rules
        self.num_steps = 0
        self.active: dict[Job, ActiveJob] = {}
        self._rows = Rows(max_rows, rules.max_new_tokens)
        self._slots = Slots(self._rows)
        self._hypotheses = Hypotheses(rules, self._rows)
        self._greedy = Greedy()
        self._prefixes = ForcedPrefixes(self._rows, rules.eos_id)
        self._beams = BeamSearch(rules, self._rows, self._slots, self._hypotheses)
        self._num_following: dict[TokenChooser, int] = {
            self._prefixes: 0,
            self._beams: 0,
        }  # called in this order
        self._in_use: list[TokenChooser] = []  # choosers with jobs, besides greedy: in most steps none
        self._streaming: list[ActiveJob] = []
        self._emissions: list[Emission] = []

    @property
    def num_rows(self) -> int:
        """Rows that have not ended."""
        return self._slots.num_live

    def add(self, jobs: Iterable[Job]) -> list[int]:
        """One row for each job, in a slot that `settle` reserved or at the end. A beam opens from it later."""
        return [self._open(ActiveJob(job, self.rules, self.num_steps)) for job in jobs]

    def _open(self, active: ActiveJob) -> int:
        row = self._slots.take(active)
        self._rows.open(row, self.rules.bos_id, active.next_check(0))
        self.active[active.job] = active
        if active.job.on_token is not None:
            self._streaming.append(active)
        active.choosers = [self._beams if active.width > 1 else self._greedy]
        if active.job.options.prefix_ids:
            active.choosers.insert(0, self._prefixes)
        self._follow(active)
        return row

    def ask(self) -> Question:
        """The tokens that the rows go on with, and what the choosers need to know."""
        question = Question(self._rows.next_ids[: self._slots.num_stepping], 1, None)
        for chooser in self._in_use:
            question = chooser.ask(question)
        return question

    def advance(self, candidates: Candidates) -> Advance:
        """Give every row that stepped its next token, and finish the jobs that are done."""
        self.num_steps += 1
        num_stepped = len(candidates.ids)
        if self.rules.forced_end:
            candidates = self._force_ends(candidates)
        if not self._in_use:  # as in most steps
            self._rows.append(*self._greedy.best(candidates))
            finished = self._end_rows(num_stepped)
        else:
            self._choose(candidates)
            finished = self._end_rows(self._rows.count)
            finished += self._move_on()
        for active in self._streaming:
            self._emit_settled(active)
        return self._advance(finished)

    def quiet_steps(self) -> int:
        """How many greedy steps may follow each other before a row needs a check, unless a row chooses eos."""
        if self._in_use or self._streaming or self.rules.forced_end:
            return 1
        return max(1, self._rows.quiet_steps())

    def advance_many(self, steps: MultiStep) -> Advance:
        """Give every row that stepped its next tokens, at most `quiet_steps` of them; only the last ones may be eos."""
        self.num_steps += len(steps.ids)
        self._rows.extend(steps.ids, steps.log_probs)
        return self._advance(self._end_rows(steps.ids.shape[1]))

    def give_up(self, jobs: Sequence[Job], reason: FinishReason) -> Advance:
        """End running jobs early, with the tokens that they have."""
        finished = []
        for active in [self.active[job] for job in jobs]:
            for row in active.rows:
                if length := self._rows.length(row):
                    self._end(active, row, length, self._hypotheses.total(active, row, length), reason)
            finished.append(self._leave(active)._replace(reason=reason))
        return self._advance(finished)

    def settle(self, num_joining: int, num_interactive: int = 0, limit: int | None = None) -> Ints | None:
        """How rows move before jobs join, some of them interactive: see `Slots.settle`."""
        return self._slots.settle(num_joining, num_interactive if self._may_pause else 0, limit)

    def pause_beyond(self, limit: int) -> None:
        """Let only the first `limit` rows step, and all interactive rows; while there is a beam, all rows."""
        self._slots.pause_beyond(limit if self._may_pause else None, self.active.values())

    def clear(self) -> list[Job]:
        """Drop all rows without results; returns the jobs that were running."""
        jobs = list(self.active)
        for active in self.active.values():
            self._unfollow(active)
        self._slots.clear()
        self.active.clear()
        self._streaming.clear()
        self._emissions.clear()
        return jobs

    def rows(self) -> list[tuple[Job, int, int]]:
        """For each live row: its job, its number in the job's beam, its number of tokens."""
        beams = [(row, job, beam) for job, each in self.active.items() for beam, row in enumerate(each.rows)]
        return [(job, beam, self._rows.length(row)) for row, job, beam in sorted(beams, key=lambda each: each[0])]

    # Choosing

    def _choose(self, candidates: Candidates) -> None:
        """Every row has its greedy choice, until the choosers in use write over those of their rows."""
        choices = self._greedy.choose(candidates).with_room(len(self._rows.numbers))
        for chooser in self._in_use:
            choices = chooser.choose(candidates, choices)
        if choices.parents is not None:
            self._gather(choices.parents)
        count = self._rows.count
        self._rows.append(choices.tokens[:count], choices.log_probs[:count])
        self._rows.add_to_sums(choices.log_probs[:count])

    def _gather(self, parents: Ints) -> None:
        """Move what is known of the rows as their beams decided; `settle` tells the runner."""
        moved = self._slots.note_moves(parents).nonzero()[0]
        if moved.size:
            self._rows.copy(moved, parents[moved])

    def _follow(self, active: ActiveJob) -> None:
        chooser = active.choosers[0]
        chooser.add(active)
        self._count(chooser, 1)

    def _unfollow(self, active: ActiveJob) -> None:
        chooser = active.choosers.pop(0)
        chooser.remove(active)
        self._count(chooser, -1)

    def _count(self, chooser: TokenChooser, more: int) -> None:
        if chooser in self._num_following:
            self._num_following[chooser] += more
            self._in_use = [chooser for chooser, following in self._num_following.items() if following]

    def _move_on(self) -> list[FinishedJob]:
        """A job that is done with its chooser follows the next one; with the last one, it leaves."""
        finished = []
        for chooser in list(self._in_use):
            for active in chooser.finished():
                if len(active.choosers) == 1:
                    finished.append(self._leave(active))
                else:
                    self._unfollow(active)
                    self._follow(active)
        return finished

    def _force_ends(self, candidates: Candidates) -> Candidates:
        """At the last token that a row may have, eos is the only candidate, and certain."""
        n = len(candidates.ids)
        limits = np.array([owner.limit for owner in self._slots.owners[:n] if owner is not None])  # [n]
        last = self._rows.lengths[:n] == limits - 1  # [n]
        self._hypotheses.cut[:n] = last & (candidates.ids[:, 0] != self.rules.eos_id)
        if not last.any():
            return candidates
        ids, log_probs = candidates.ids.copy(), candidates.log_probs.copy()
        ids[last] = self.rules.eos_id
        log_probs[last, 0] = 0.0
        log_probs[last, 1:] = -np.inf
        return candidates._replace(ids=ids, log_probs=log_probs)

    # Endings

    def _end_rows(self, num_stepped: int) -> list[FinishedJob]:
        """End the rows at eos, at their limit, or in a loop; a job without rows is finished."""
        rows = self._rows.to_check(self.rules.eos_id, num_stepped)
        finished = []
        for active in dict.fromkeys([self._slots.owners[row] for row in rows]):
            if active is None:  # its beam left the row in this step
                continue
            # In the order of the beam, not of the batch, because hypotheses may tie.
            for row in [row for row in active.rows if row in rows]:
                self._check(active, row)
            if not active.rows:
                finished.append(self._leave(active))
        return finished

    def _check(self, active: ActiveJob, row: int) -> None:
        length = self._rows.length(row)
        if self._rows.next_ids[row] == self.rules.eos_id:
            self._finish(active, row, length)
        elif superfluous := self._loop_length(active, row, length):
            length -= superfluous
            self._end(active, row, length, self._rows.sum_of(row, length), FinishReason.REPETITION)
        elif length >= active.limit:
            self._end(active, row, length, self._hypotheses.total(active, row, length), FinishReason.LENGTH)
        else:
            self._rows.check_again(row, active.next_check(length))
            return
        active.rows.remove(row)
        self._slots.free([row])

    def _loop_length(self, active: ActiveJob, row: int, length: int) -> int | None:
        """How many tokens at the end of a row only repeat what is before them."""
        if active.loop_limits is None:
            return None
        prefix = len(active.job.options.prefix_ids)
        # Most rows are in no loop, and their last tokens show it.
        first = max(0, length - max(active.loop_limits) - repetition.MAX_PERIOD)
        tail = self._rows.tokens(row, first, length)
        if repetition.loop_length(tail, active.loop_limits, max(0, prefix - first)) is None:
            return None
        return repetition.loop_length(self._rows.tokens(row, 0, length), active.loop_limits, prefix)

    def _finish(self, active: ActiveJob, row: int, length: int) -> None:
        """The row's last token is eos."""
        hypothesis = self._hypotheses.finish(active, row, length, self._hypotheses.total(active, row, length))
        self._emit(active, row, len(hypothesis.ids))

    def _end(self, active: ActiveJob, row: int, length: int, total: float, reason: FinishReason) -> None:
        """The row ends without eos."""
        self._hypotheses.end(active, row, length, total, reason)
        self._emit(active, row, length)

    def _leave(self, active: ActiveJob) -> FinishedJob:
        """Take a job out, best hypothesis first: those that finished with eos before those that did not."""
        self._slots.free(active.rows)
        self._unfollow(active)
        job, ended = active.job, active.ended
        del self.active[job]
        if job.on_token is not None:
            self._streaming.remove(active)
        if len(ended) > 1:
            ended.sort(key=lambda each: (not each.finished, -each.score))
        return FinishedJob(
            job,
            tuple(ended[: job.options.n_best]),
            ended[0].finish_reason if ended else FinishReason.CANCELLED,
            self.num_steps - active.started_step,
            ended[0].num_tokens if ended else 0,
        )

    # Streaming

    def _emit_settled(self, active: ActiveJob) -> None:
        """Stream the tokens that no loop can take back: all but those at the end that repeat."""
        row = active.rows[0]
        length = self._rows.length(row)
        if active.loop_limits is not None:
            ids, start = self._rows.tokens(row, 0, length), len(active.job.options.prefix_ids)
            length -= repetition.repeated(ids, start)
        self._emit(active, row, length)

    def _emit(self, active: ActiveJob, row: int, end: int) -> None:
        if active.job.on_token is not None and end > active.emitted:
            tokens = self._rows.tokens(row, active.emitted, end)
            log_probs = self._rows.log_probs(row, active.emitted, end)
            self._emissions.append(Emission(active.job, list(zip(tokens, log_probs, strict=True))))
            active.emitted = end

    def _advance(self, finished: list[FinishedJob]) -> Advance:
        emissions, self._emissions = self._emissions, []
        return Advance(emissions, finished)

    @property
    def _may_pause(self) -> bool:
        """The rows of a beam step together, and lie anywhere; prefixes are short."""
        return not self._in_use
