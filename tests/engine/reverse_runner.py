"""Runners without a network: exact answers in microseconds, and strict about how they are used.

`ReverseRunner` translates by reversing the source. `DreamRunner` makes up log-probabilities that depend on the source
and on the tokens so far, and on nothing else, so that beams branch, tie, reorder and end at odd moments. Both check
what the engine promises a runner: rows within bounds, survivors in place, holes filled from the tail.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence

import numpy as np

from dragoman.service.engine.seams import Candidates, MultiStep, multi_step_by_steps

BOS, EOS = 2, 3
EMPTY_ROW: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
LogProbs = Callable[[tuple[int, ...], tuple[int, ...]], np.ndarray]


def reversal(vocab_size: int = 64) -> LogProbs:
    """Log-probabilities [vocab] that are sure of the reversed source."""

    def log_probs(source: tuple[int, ...], prefix: tuple[int, ...]) -> np.ndarray:
        target = [*reversed([token for token in source if token != EOS]), EOS]
        scores = -4.0 - np.arange(vocab_size, dtype=np.float32) / 64
        scores[target[min(len(prefix), len(target) - 1)]] = -0.25
        return scores

    return log_probs


def dream(vocab_size: int = 12, coarse: bool = False, eos_bonus: float = 0.1) -> LogProbs:
    """Pseudo-random log-probabilities [vocab]; coarse ones tie often. Eos grows likelier by `eos_bonus` a token."""
    known: dict[tuple[tuple[int, ...], tuple[int, ...]], np.ndarray] = {}

    def log_probs(source: tuple[int, ...], prefix: tuple[int, ...]) -> np.ndarray:
        if (source, prefix) not in known:
            seed = zlib.crc32(repr((source, prefix)).encode())
            scores = np.random.default_rng(seed).standard_normal(vocab_size)
            scores[EOS] += eos_bonus * len(prefix)
            scores[[0, 1, BOS]] -= 50
            scores -= np.log(np.exp(scores).sum())
            scores = np.round(scores * 2) / 2 if coarse else scores
            known[source, prefix] = scores.astype(np.float32)
        return known[source, prefix]

    return log_probs


def stutter(vocab_size: int = 12) -> LogProbs:
    """Log-probabilities [vocab] that look back one token only, so that greedy paths run into loops."""
    made_up = dream(vocab_size, eos_bonus=0.0)
    return lambda source, prefix: made_up(source[:1], prefix[-1:])


def best(scores: np.ndarray, k: int) -> np.ndarray:
    """The ids of the k best, ties by lower id."""
    return np.argsort(-scores, kind="stable")[:k]


class FakeRunner:
    """A runner over any log-probabilities that are a function of source and prefix."""

    def __init__(self, log_probs: LogProbs, max_rows: int = 8, max_source_tokens: int = 64) -> None:
        self.max_rows = max_rows
        self.max_source_tokens = max_source_tokens
        self.rows: list[tuple[tuple[int, ...], tuple[int, ...]]] = []  # source, tokens so far with bos
        self.num_steps = 0
        self.num_moves = 0  # rows that did not stay where they were
        self.added: list[list[int]] = []  # the source lengths of every call
        self.widths: list[int] = []  # rows of every step
        self.fail_at: set[str] = set()  # "add", "step", "keep": raise there, once
        self.before_step: Callable[[int], None] = lambda step: None
        self._log_probs = log_probs

    def add(self, sources: Sequence[Sequence[int]], rows: Sequence[int]) -> None:
        self._maybe_fail("add")
        assert sources
        assert len(set(rows)) == len(rows) == len(sources)
        assert all(0 < len(source) <= self.max_source_tokens for source in sources)
        for source, row in zip(sources, rows, strict=True):
            self.rows[row : row + 1] = [(tuple(source), ())]
            assert row < len(self.rows), "a new row follows the last one"
        self.added.append([len(source) for source in sources])
        assert len(self.rows) <= self.max_rows

    def step(self, next_ids: np.ndarray, k: int, wanted: np.ndarray | None = None) -> Candidates:
        self.before_step(self.num_steps)
        self._maybe_fail("step")
        stepping, paused = self.rows[: len(next_ids)], self.rows[len(next_ids) :]
        assert 0 < len(next_ids) == len(stepping)
        assert next_ids.dtype == np.int64
        assert next_ids.flags.c_contiguous
        assert self.rows
        assert EMPTY_ROW not in self.rows, "a place was kept free for a row that never came"
        self.num_steps += 1
        self.widths.append(len(stepping))
        stepping = [(s, (*p, int(token))) for (s, p), token in zip(stepping, next_ids, strict=True)]
        assert all(prefix[0] == BOS for _, prefix in stepping)
        self.rows = stepping + paused
        scores = np.stack([self._log_probs(source, prefix[1:]) for source, prefix in stepping])  # [rows, vocab]
        ids = np.stack([best(row, k) for row in scores])  # [rows, k]
        of_wanted = None if wanted is None else np.take_along_axis(scores, wanted[:, None], axis=1)[:, 0]
        return Candidates(ids, np.take_along_axis(scores, ids, axis=1), of_wanted)

    def multi_step(self, next_ids: np.ndarray, most: int, end_id: int, go_on: Callable[[int], bool]) -> MultiStep:
        return multi_step_by_steps(self, next_ids, most, end_id, go_on)

    def keep(self, parents: np.ndarray) -> None:
        self._maybe_fail("keep")
        count = len(self.rows)
        assert len(parents) <= self.max_rows
        assert all(0 <= parent < count or parent == row for row, parent in enumerate(parents))
        in_place = {int(parent) for row, parent in enumerate(parents) if row == parent}
        for row, parent in enumerate(parents):
            # A row that lives on stays where it is, unless the batch is now too short for its place.
            assert parent in in_place or parent >= len(parents) or parents[parent] >= len(parents), (
                f"{count} rows, moved to {parents}"
            )
            self.num_moves += int(row != parent)
        self.rows = [self.rows[parent] if parent < count else EMPTY_ROW for parent in parents]

    def _maybe_fail(self, where: str) -> None:
        if where in self.fail_at:
            self.fail_at.remove(where)
            raise RuntimeError(f"the {where} of this runner fails")


def reverse_runner(max_rows: int = 8, vocab_size: int = 64) -> FakeRunner:
    return FakeRunner(reversal(vocab_size), max_rows)


def dream_runner(max_rows: int = 8, coarse: bool = False) -> FakeRunner:
    return FakeRunner(dream(coarse=coarse), max_rows)
