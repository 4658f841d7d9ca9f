"""Pure NumPy: candidates -> next tokens, finished hypotheses, rows to keep.

Greedy and beam jobs share the rows. What happens to every row at every step is one array operation for the whole
batch; Python looks only at rows that end, stream, are forced along a prefix or belong to a beam. A job sees nothing but
its own rows, in its own order, so that it translates alike alone and in a crowd. When to run, and for whom, is left to
`loop` and `scheduler`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from dragoman.service.engine import repetition
from dragoman.service.engine.beam import Choice, best_of_beams, branch_full
from dragoman.service.engine.decoding import Decoding, Ended
from dragoman.service.engine.job import DecodingRules, FinishReason, Hypothesis, Job
from dragoman.service.engine.rows import Floats, Ints, Rows
from dragoman.service.engine.seats import Seats


class Candidates(NamedTuple):
    """What a runner's step returns, best first; ties by lower id."""

    ids: Ints  # [rows, k]
    log_probs: Floats  # [rows, k]
    wanted_log_probs: Floats | None = None  # [rows], of the tokens that the step was asked about


class Stretch(NamedTuple):
    """What a runner's stride returns: the best token of each row, step by step."""

    ids: Ints  # [steps, rows]
    log_probs: Floats  # [steps, rows]


class Question(NamedTuple):
    """What the search asks of the runner's next step."""

    next_ids: Ints  # [rows]
    k: int
    wanted: Ints | None  # [rows], only while a row is forced along a prefix


class Outcome(NamedTuple):
    """A job that left the batch; `num_tokens` are those of its best hypothesis, eos counted."""

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
    """What a step brought: tokens to stream, jobs that ended."""

    emissions: list[Emission]
    outcomes: list[Outcome]


class _Step:
    """The choices of one step, with room for the rows that beams open."""

    def __init__(self, candidates: Candidates, numbers: Ints) -> None:
        room = len(numbers) - len(candidates.ids)
        self.parents = numbers.copy()  # [max_rows]
        self.tokens = np.concatenate([candidates.ids[:, 0], np.zeros(room, np.int64)])  # [max_rows]
        self.log_probs = np.concatenate([candidates.log_probs[:, 0], np.zeros(room, np.float32)])  # [max_rows]


_NOTHING = Advance([], [])


class Search:
    """The decoding state of one batch."""

    def __init__(self, rules: DecodingRules, max_rows: int) -> None:
        self.rules = rules
        self.num_steps = 0
        self.decodings: dict[Job, Decoding] = {}
        self._rows = Rows(max_rows, rules.max_new_tokens)
        self._seats = Seats(self._rows)
        self._forced: list[Decoding] = []
        self._streaming: list[Decoding] = []
        self._beams: dict[int, list[Decoding]] = {}  # by width, once open
        self._emissions: list[Emission] = []
        self._cut = np.zeros(max_rows, bool)  # rows whose eos only their limit put there

    @property
    def num_rows(self) -> int:
        """Of those that live."""
        return self._seats.num_live

    def add(self, jobs: Iterable[Job]) -> list[int]:
        """One row per job, where `settle` left room, then at the end; a beam opens from it after the forced prefix."""
        return [self._open(Decoding(job, self.rules, self.num_steps)) for job in jobs]

    def _open(self, decoding: Decoding) -> int:
        row = self._seats.take(decoding)
        self._rows.open(row, self.rules.bos_id, decoding.next_look(0))
        self.decodings[decoding.job] = decoding
        if decoding.job.on_token is not None:
            self._streaming.append(decoding)
        if decoding.job.options.prefix_ids:
            self._forced.append(decoding)
        elif decoding.width > 1:
            self._beams.setdefault(decoding.width, []).append(decoding)
        return row

    def ask(self) -> Question:
        """The tokens to go on with, and how many candidates the widest beam needs."""
        wanted = None
        if self._forced:
            wanted = np.full(self._rows.count, self.rules.eos_id)
            for decoding in self._forced:
                wanted[decoding.rows[0]] = self._forced_token(decoding)
        next_ids = self._rows.next_ids[: self._seats.num_stepping]
        # A beam may go on in one of its rows alone, and a row has one candidate that ends: no other can be needed.
        return Question(next_ids, max(self._beams) + 1 if self._beams else 1, wanted)

    def advance(self, candidates: Candidates) -> Advance:
        """Give every row that stepped its next token, and end what ends."""
        self.num_steps += 1
        num_stepped = len(candidates.ids)
        if self.rules.forced_end:
            candidates = self._force_ends(candidates)
        if self._forced or self._beams:
            self._choose(candidates)
        else:  # as in most steps: every row takes its best candidate
            self._rows.append(candidates.ids[:, 0], candidates.log_probs[:, 0])
        outcomes = self._end_rows(self._rows.count if self._beams else num_stepped)
        if self._forced:
            self._open_beams()
        if self._beams:
            outcomes += self._end_beams()
        for decoding in self._streaming:
            self._emit_settled(decoding)
        return self._told(outcomes)

    def quiet_steps(self) -> int:
        """How many steps may pass before a row must be looked at for another reason than that it chose eos."""
        if self._forced or self._beams or self._streaming or self.rules.forced_end:
            return 1
        return max(1, self._rows.patience())

    def advance_by(self, stretch: Stretch) -> Advance:
        """Give every row that stepped its next tokens, at most `quiet_steps` of them; only the last ones may be eos."""
        self.num_steps += len(stretch.ids)
        self._rows.extend(stretch.ids, stretch.log_probs)
        return self._told(self._end_rows(stretch.ids.shape[1]))

    def _choose(self, candidates: Candidates) -> None:
        """Where beams branch or prefixes force, rows take other candidates than their best."""
        step = _Step(candidates, self._rows.numbers)
        if self._forced:
            self._force_prefixes(candidates, step)
        if self._beams:
            for width in self._beams:
                self._branch(width, candidates, step)
            self._gather(step.parents)
        count = self._rows.count
        self._rows.append(step.tokens[:count], step.log_probs[:count])
        self._rows.add_to_sums(step.log_probs[:count])

    def give_up(self, jobs: Sequence[Job], reason: FinishReason) -> Advance:
        """End running jobs early, with what they have."""
        outcomes = []
        for decoding in [self.decodings[job] for job in jobs]:
            for row in decoding.rows:
                if length := self._rows.length(row):
                    self._close(decoding, row, length, self._total(decoding, row, length), reason)
            outcomes.append(self._leave(decoding)._replace(reason=reason))
        return self._told(outcomes)

    def settle(self, num_joining: int, num_lines: int = 0, limit: int | None = None) -> Ints | None:
        """Where rows go before so many jobs join, some of them lines: see `Seats.settle`."""
        return self._seats.settle(num_joining, num_lines if self._may_pause else 0, limit)

    def pause_beyond(self, limit: int) -> None:
        """Let no more than the first `limit` rows step, but all lines and, while there are any, all beams."""
        self._seats.pause_beyond(limit if self._may_pause else None, self.decodings.values())

    def clear(self) -> list[Job]:
        """Drop all rows without results; returns the jobs that were running."""
        jobs = list(self.decodings)
        self._seats.clear()
        self.decodings.clear()
        self._beams.clear()
        for state in (self._forced, self._streaming, self._emissions):
            state.clear()
        return jobs

    def rows(self) -> list[tuple[Job, int, int]]:
        """For each live row: its job, its place in the job's beam, its number of tokens."""
        beams = [(row, job, beam) for job, each in self.decodings.items() for beam, row in enumerate(each.rows)]
        return [(job, beam, self._rows.length(row)) for row, job, beam in sorted(beams, key=lambda each: each[0])]

    # What is forced

    def _force_ends(self, candidates: Candidates) -> Candidates:
        """At a row's last token eos is the only candidate, and certain."""
        n = len(candidates.ids)
        limits = np.array([owner.limit for owner in self._seats.owners[:n] if owner is not None])  # [n]
        last = self._rows.lengths[:n] == limits - 1  # [n]
        self._cut[:n] = last & (candidates.ids[:, 0] != self.rules.eos_id)
        if not last.any():
            return candidates
        ids, log_probs = candidates.ids.copy(), candidates.log_probs.copy()
        ids[last] = self.rules.eos_id
        log_probs[last, 0] = 0.0
        log_probs[last, 1:] = -np.inf
        return candidates._replace(ids=ids, log_probs=log_probs)

    def _forced_token(self, decoding: Decoding) -> int:
        return decoding.job.options.prefix_ids[self._rows.length(decoding.rows[0])]

    def _force_prefixes(self, candidates: Candidates, step: _Step) -> None:
        assert candidates.wanted_log_probs is not None, "a runner must score the tokens that it is asked about"
        for decoding in self._forced:
            row = decoding.rows[0]
            step.tokens[row] = self._forced_token(decoding)
            step.log_probs[row] = candidates.wanted_log_probs[row]

    def _open_beams(self) -> None:
        """Let go of the rows that reached the end of their prefix."""
        for decoding in list(self._forced):
            if self._rows.length(decoding.rows[0]) == len(decoding.job.options.prefix_ids):
                self._forced.remove(decoding)
                if decoding.width > 1:
                    self._beams.setdefault(decoding.width, []).append(decoding)

    # Beams

    def _branch(self, width: int, candidates: Candidates, step: _Step) -> None:
        """Let every beam of one width go on: full ones together, those that open or shrink one by one."""
        full = [decoding for decoding in self._beams[width] if len(decoding.rows) == width]
        if full and self._branch_full(full, candidates, step):
            others = [decoding for decoding in self._beams[width] if len(decoding.rows) < width]
        else:
            others = self._beams[width]
        if others:
            rows = [decoding.rows for decoding in others]
            best = best_of_beams(rows, self._rows.sums, candidates.ids, candidates.log_probs, 2 * width)
            for decoding, choices in zip(others, best, strict=True):
                self._walk(decoding, choices, step)

    def _branch_full(self, full: list[Decoding], candidates: Candidates, step: _Step) -> bool:
        """False when their candidates do not suffice."""
        rows = [decoding.rows for decoding in full]
        branches = branch_full(rows, self._rows.sums, candidates.ids, candidates.log_probs, self.rules.eos_id)
        if branches is None:
            return False
        for beam, choice in branches.ended:
            self._end_candidate(full[beam], choice)
        step.parents[branches.rows] = branches.parents
        step.tokens[branches.rows] = branches.tokens
        step.log_probs[branches.rows] = branches.log_probs
        for decoding, own in zip(full, branches.rows.tolist(), strict=True):
            decoding.rows = own
        return True

    def _end_candidate(self, decoding: Decoding, choice: Choice) -> None:
        """Note a beam's row with eos after it as a hypothesis that ended."""
        self._rows.note_log_prob(choice.parent, choice.log_prob)
        num_tokens = self._rows.length(choice.parent) + 1
        reason = self._eos_reason(choice.parent)
        self._close(decoding, choice.parent, num_tokens, choice.total, reason, finished=True)

    def _walk(self, decoding: Decoding, best: Iterable[Choice], step: _Step) -> None:
        """Let the best candidates live, as many as the beam is wide; note those that end before."""
        children: list[tuple[int, int, float]] = []
        for rank, choice in enumerate(best):
            if choice.total == -np.inf or len(children) == decoding.width:
                break
            if choice.token != self.rules.eos_id:
                children.append(choice[:3])
            elif rank < decoding.width:
                self._end_candidate(decoding, choice)
        decoding.rows = self._place(decoding, [parent for parent, _, _ in children])
        for row, (parent, token, log_prob) in zip(decoding.rows, children, strict=True):
            step.parents[row], step.tokens[row], step.log_probs[row] = parent, token, log_prob

    def _place(self, decoding: Decoding, parents: list[int]) -> list[int]:
        """A row for each child: the first child of a row stays in it, the others take what is free, then new rows."""
        free = [row for row in decoding.rows if row not in parents]
        rows: list[int] = []
        for parent in parents:
            if parent not in rows:
                rows.append(parent)
            elif free:
                rows.append(free.pop(0))
            else:
                rows.append(self._seats.append(decoding))
        self._seats.vacate(free)
        return rows

    def _gather(self, parents: Ints) -> None:
        """Move what is known of the rows as their beams decided; the runner is told by `settle`."""
        moved = self._seats.note_moves(parents).nonzero()[0]
        if moved.size:
            self._rows.copy(moved, parents[moved])

    # Endings

    def _end_rows(self, num_stepped: int) -> list[Outcome]:
        """End the rows at eos, at their limit, or in a loop; a greedy job ends with its row."""
        rows = self._rows.to_look_at(self.rules.eos_id, num_stepped)
        outcomes = []
        for decoding in dict.fromkeys([self._seats.owners[row] for row in rows]):
            if decoding is None:  # its beam left the row in this step
                continue
            # In the order of the beam, not of the batch, because hypotheses may tie.
            for row in [row for row in decoding.rows if row in rows]:
                self._look_at(decoding, row)
            if not decoding.rows and decoding.width == 1:
                outcomes.append(self._leave(decoding))
        return outcomes

    def _look_at(self, decoding: Decoding, row: int) -> None:
        length = self._rows.length(row)
        total = self._total(decoding, row, length)
        if self._rows.next_ids[row] == self.rules.eos_id:
            self._close(decoding, row, length, total, self._eos_reason(row), finished=True)
        elif superfluous := self._loop_length(decoding, row, length):
            length -= superfluous
            self._close(decoding, row, length, self._rows.sum_of(row, length), FinishReason.REPETITION)
        elif length >= decoding.limit:
            self._close(decoding, row, length, total, FinishReason.LENGTH)
        else:
            self._rows.look_again(row, decoding.next_look(length))
            return
        decoding.rows.remove(row)
        self._seats.vacate([row])

    def _loop_length(self, decoding: Decoding, row: int, length: int) -> int | None:
        """How many tokens at the end of a row are nothing but a loop."""
        if decoding.loop_limits is None:
            return None
        prefix = len(decoding.job.options.prefix_ids)
        # Most rows are in no loop, and their last tokens show it.
        first = max(0, length - max(decoding.loop_limits) - repetition.MAX_PERIOD)
        tail = self._rows.tokens(row, first, length)
        if repetition.loop_length(tail, decoding.loop_limits, max(0, prefix - first)) is None:
            return None
        return repetition.loop_length(self._rows.tokens(row, 0, length), decoding.loop_limits, prefix)

    def _end_beams(self) -> list[Outcome]:
        beams = [decoding for group in self._beams.values() for decoding in group]
        # Few of them in any step, so who is not even asked is told apart here.
        ripe = [each for each in beams if each.num_finished >= each.width or not each.rows]
        return [self._leave(decoding) for decoding in ripe if not decoding.rows or self._may_stop(decoding)]

    def _may_stop(self, decoding: Decoding) -> bool:
        """Whether a beam with as many hypotheses as it is wide needs no more of them."""
        if self.rules.stop_rule == "count":
            return True
        scores = sorted((ended.hypothesis.score for ended in decoding.ended if ended.finished), reverse=True)
        best_sum = float(self._rows.sums[decoding.rows].max())
        return self._score(best_sum, decoding.limit, decoding.alpha) <= scores[decoding.width - 1]

    def _total(self, decoding: Decoding, row: int, length: int) -> float:
        """Of a row's log-probabilities; greedy rows are summed when they are looked at, to the same bits."""
        return self._rows.sum_of(row, length) if decoding.width == 1 else float(self._rows.sums[row])

    def _eos_reason(self, row: int) -> FinishReason:
        return FinishReason.LENGTH if self._cut[row] else FinishReason.EOS

    def _close(
        self, decoding: Decoding, row: int, num_tokens: int, total: float, reason: FinishReason, finished: bool = False
    ) -> None:
        """Note the first `num_tokens` of a row, whose log-probabilities sum to `total`, as a hypothesis that ended."""
        job, num_ids = decoding.job, num_tokens - 1 if finished else num_tokens
        hypothesis = Hypothesis(
            tuple(self._rows.tokens(row, 0, num_ids)),
            self._score(total, num_tokens, decoding.alpha),
            tuple(self._rows.log_probs(row, 0, num_tokens)) if job.options.log_probs else (),
        )
        decoding.ended.append(Ended(hypothesis, reason, num_tokens, finished))
        decoding.num_finished += finished
        if job.on_token is not None:
            self._emit(decoding, row, num_ids)

    def _score(self, total: float, num_tokens: int, alpha: float) -> float:
        match self.rules.normalization:
            case "gnmt":
                return total / float(((5.0 + num_tokens) / 6.0) ** alpha)
            case "length":
                return total / float(num_tokens**alpha)
            case "none":
                return total

    def _leave(self, decoding: Decoding) -> Outcome:
        """Take a job out, best hypothesis first: those that reached eos before those that did not."""
        self._seats.vacate(decoding.rows)
        job, ended = decoding.job, decoding.ended
        del self.decodings[job]
        if job.on_token is not None:
            self._streaming.remove(decoding)
        if decoding in self._forced:
            self._forced.remove(decoding)
        elif decoding.width > 1:
            self._beams[decoding.width].remove(decoding)
            if not self._beams[decoding.width]:
                del self._beams[decoding.width]
        if len(ended) > 1:
            ended.sort(key=lambda each: (not each.finished, -each.hypothesis.score))
        return Outcome(
            job,
            tuple([each.hypothesis for each in ended[: job.options.n_best]]),
            ended[0].reason if ended else FinishReason.CANCELLED,
            self.num_steps - decoding.started_step,
            ended[0].num_tokens if ended else 0,
        )

    # Streaming

    def _emit_settled(self, decoding: Decoding) -> None:
        """Stream what no loop can take back: all but the stretch that repeats so far."""
        row = decoding.rows[0]
        length = self._rows.length(row)
        if decoding.loop_limits is not None:
            ids, start = self._rows.tokens(row, 0, length), len(decoding.job.options.prefix_ids)
            length -= repetition.repeated(ids, start)
        self._emit(decoding, row, length)

    def _emit(self, decoding: Decoding, row: int, end: int) -> None:
        if end > decoding.emitted:
            tokens = self._rows.tokens(row, decoding.emitted, end)
            log_probs = self._rows.log_probs(row, decoding.emitted, end)
            self._emissions.append(Emission(decoding.job, list(zip(tokens, log_probs, strict=True))))
            decoding.emitted = end

    def _told(self, outcomes: list[Outcome]) -> Advance:
        emissions, self._emissions = self._emissions, []
        return Advance(emissions, outcomes)

    @property
    def _may_pause(self) -> bool:
        """A beam's rows step together, and lie anywhere; prefixes are short."""
        return not self._beams and not self._forced
