"""Greedy and beam search for one job at a time, as plainly as they can be written: what the engine must equal."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from dragoman.service.engine.job import DecodingOptions, DecodingRules, FinishReason
from tests.engine.reverse_runner import LogProbs, best

MAX_PERIOD, MIN_TURNS, MIN_TOKENS, LOOK_EVERY = 8, 4, 24, 8


@dataclass
class Path:
    ids: list[int] = field(default_factory=list)  # with eos
    log_probs: list[float] = field(default_factory=list)
    reason: FinishReason | None = None

    @property
    def total(self) -> float:
        total = 0.0
        for log_prob in self.log_probs:
            total += log_prob
        return total

    def extended(self, token: int, log_prob: float) -> Path:
        return Path([*self.ids, token], [*self.log_probs, log_prob])

    def answer(self, rules: DecodingRules, alpha: float) -> tuple[tuple[int, ...], float, tuple[float, ...]]:
        n = len(self.ids)
        penalty = {"gnmt": ((5 + n) / 6) ** alpha, "length": n**alpha, "none": 1.0}[rules.normalization]
        return tuple(token for token in self.ids if token != rules.eos_id), self.total / penalty, tuple(self.log_probs)


def translate(log_probs: LogProbs, rules: DecodingRules, source: tuple[int, ...], options: DecodingOptions):
    """The n best (ids, score, log-probabilities), and how the best one ended."""
    alpha = rules.alpha if options.length_penalty is None else options.length_penalty
    limit = options.max_new_tokens or 3 * len(source) + 10 + len(options.prefix_ids)
    limit = min(limit, rules.max_new_tokens)
    start = Path()
    for token in options.prefix_ids:
        start = start.extended(token, float(log_probs(source, tuple(start.ids))[token]))
    guard = options.repetition_guard and rules.repetition_guard
    arguments = (log_probs, rules, source, start, limit, guard)
    if options.beam_size == 1:
        finished, unfinished = [], []
        path = _greedy(*arguments)
        (finished if path.ids[-1] == rules.eos_id else unfinished).append(path)
    else:
        finished, unfinished = _beam(*arguments, options.beam_size, alpha)
    paths = [
        *sorted(finished, key=lambda path: -path.answer(rules, alpha)[1]),
        *sorted(unfinished, key=lambda path: -path.answer(rules, alpha)[1]),
    ]
    return [path.answer(rules, alpha) for path in paths[: options.n_best]], paths[0].reason


def _candidates(log_probs, rules, source, path, limit, k) -> list[tuple[int, float]]:
    scores = log_probs(source, tuple(path.ids))
    if rules.forced_end and len(path.ids) == limit - 1:
        return [(rules.eos_id, 0.0)]
    return [(int(token), float(scores[token])) for token in best(scores, k)]


def _eos_reason(log_probs, rules, source, path, limit) -> FinishReason:
    natural = int(np.argmax(log_probs(source, tuple(path.ids)))) == rules.eos_id
    cut = rules.forced_end and len(path.ids) == limit - 1 and not natural
    return FinishReason.LENGTH if cut else FinishReason.EOS


def _greedy(log_probs, rules, source, path, limit, guard) -> Path:
    prefix = len(path.ids)
    while True:
        token, log_prob = _candidates(log_probs, rules, source, path, limit, 1)[0]
        reason = _eos_reason(log_probs, rules, source, path, limit)
        path = path.extended(token, log_prob)
        if token == rules.eos_id:
            path.reason = reason
            return path
        ended = _cut_loop(path, source, prefix, guard, limit) or _at_limit(path, limit)
        if ended:
            return ended


def _beam(log_probs, rules, source, start, limit, guard, width, alpha) -> tuple[list[Path], list[Path]]:
    live, finished, unfinished = [start], [], []
    prefix = len(start.ids)
    while live:
        ordered = sorted(
            (
                (-(path.total + log_prob), row, rank, token, log_prob)
                for row, path in enumerate(live)
                for rank, (token, log_prob) in enumerate(_candidates(log_probs, rules, source, path, limit, 2 * width))
            ),
            key=lambda candidate: candidate[:3],
        )
        children: list[Path] = []
        for place, (_, row, _, token, log_prob) in enumerate(ordered[: 2 * width]):
            child = live[row].extended(token, log_prob)
            if token == rules.eos_id:
                if place < width:
                    child.reason = _eos_reason(log_probs, rules, source, live[row], limit)
                    finished.append(child)
            elif len(children) < width:
                children.append(child)
        ended = [_cut_loop(path, source, prefix, guard, limit) or _at_limit(path, limit) for path in children]
        unfinished += [path for path in ended if path]
        live = [path for path, end in zip(children, ended, strict=True) if not end]
        if len(finished) >= width and (
            rules.stop_rule == "count" or _bound(rules, live, finished, limit, width, alpha)
        ):
            break
    return finished, unfinished


def _bound(rules, live, finished, limit, width, alpha) -> bool:
    if not live:
        return True
    kept = sorted((path.answer(rules, alpha)[1] for path in finished), reverse=True)[:width]
    best_live = Path([0] * limit, [max(path.total for path in live)]).answer(rules, alpha)[1]
    return best_live <= kept[-1]


def _at_limit(path: Path, limit: int) -> Path | None:
    if len(path.ids) < limit:
        return None
    path.reason = FinishReason.LENGTH
    return path


def _cut_loop(path: Path, source: tuple[int, ...], prefix: int, guard: bool, limit: int) -> Path | None:
    """The path without its loop, if it is in one: the definition, not the counting."""
    length = len(path.ids)
    looked_for = length == limit or (length >= MIN_TOKENS and (length - MIN_TOKENS) % LOOK_EVERY == 0)
    if not guard or not looked_for:
        return None
    allowed = max(MIN_TOKENS, 2 * longest_cycle(source) + 1)
    for period in range(1, MAX_PERIOD + 1):
        run = repeats(path.ids, period, prefix)
        if run + period >= allowed and run + period >= MIN_TURNS * period:
            keep = len(path.ids) - run
            return Path(path.ids[:keep], path.log_probs[:keep], FinishReason.REPETITION)
    return None


def repeats(ids: list[int] | tuple[int, ...], period: int, start: int = 0) -> int:
    """How many of the last tokens, from `start` on, equal the one a period before."""
    run = 0
    while len(ids) - 1 - run >= max(start, period) and ids[-1 - run] == ids[-1 - run - period]:
        run += 1
    return run


def longest_cycle(ids: tuple[int, ...]) -> int:
    spans = [0]
    for end in range(1, len(ids) + 1):
        for period in range(1, MAX_PERIOD + 1):
            run = repeats(ids[:end], period)
            if run >= period:
                spans.append(run + period)
    return max(spans)
