"""Which pairs an epoch shows, in which batches: weighted, joined, bucketed by length, and the same for the same seed.

All pairs of an epoch are shuffled, and cut into windows. A window is sorted by length and cut into batches, so that
almost nothing in a batch is padding; its batches are shuffled again. Only one window is held in memory. The order of an
epoch depends only on the seed and the epoch's number: a resumed run skips batches instead of remembering them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from dragoman.model.shards import Corpus
from dragoman.model.tokenizer import BOS_ID, EOS_ID, MACHINE_TAG, PAD_ID, Tokenizer, target_tag

JOINED_TOKENS = (20, 80)  # source tokens that a joined pair aims for
WINDOW_PAIRS = 1 << 17
EXTRA_TOKENS = 3  # that a side may have beside its text: the tags of the target and of a machine, the end


@dataclass(frozen=True)
class Direction:
    source: str
    target: str
    prefix_ids: tuple[int, ...]  # before every source: the target's tag, where a model has several targets
    machine_id: int
    swapped: bool  # the source is the corpus's second side


def directions(pairs: Sequence[tuple[str, str]], languages: tuple[str, str], tokenizer: Tokenizer) -> list[Direction]:
    tagged = len({target for _, target in pairs}) > 1
    return [
        Direction(
            source,
            target,
            (tokenizer.symbol_id(target_tag(target)),) if tagged else (),
            tokenizer.symbol_id(MACHINE_TAG),
            swapped=source == languages[1],
        )
        for source, target in pairs
    ]


@dataclass(frozen=True)
class Batch:
    source: torch.Tensor  # [B, S]
    target_in: torch.Tensor  # [B, T], starts with bos
    target_out: torch.Tensor  # [B, T], ends with eos
    num_target_tokens: int
    num_tokens: int  # source and target, without padding


Item = tuple[int, int, tuple[int, ...]]  # corpus, direction, pairs (more than one are joined)


@dataclass(frozen=True)
class Draws:
    """What an epoch shows, in order: pair `pairs[i]` of part `parts[i]`, a part being a corpus in a direction."""

    parts: np.ndarray  # [draws]
    pairs: np.ndarray  # [draws]

    def __len__(self) -> int:
        return len(self.pairs)

    def window(self, start: int) -> "Draws":
        return Draws(self.parts[start : start + WINDOW_PAIRS], self.pairs[start : start + WINDOW_PAIRS])


class Batches:
    def __init__(
        self,
        corpora: Sequence[Corpus],
        directions: Sequence[Direction],
        batch_tokens: int,
        join_fraction: float = 0.0,
        max_tokens: int = 120,
        seed: int = 1,
    ) -> None:
        self.corpora, self.directions = corpora, directions
        self.batch_tokens, self.join_fraction, self.max_tokens, self.seed = (
            batch_tokens,
            join_fraction,
            max_tokens,
            seed,
        )
        self._parts = [
            (c, d)
            for c, corpus in enumerate(corpora)
            for d, direction in enumerate(directions)
            if corpus.into in (None, direction.target)
        ]

    def epoch(self, number: int) -> Iterator[list[Item]]:
        """The batches of an epoch, in order."""
        rng = np.random.default_rng([self.seed, number])
        draws = self._draw(rng)
        for start in range(0, len(draws), WINDOW_PAIRS):
            yield from self._bucket(self._window_items(draws.window(start), rng), rng)

    def _draw(self, rng: np.random.Generator) -> Draws:
        chosen = [self._choose(self.corpora[c], rng) for c, _ in self._parts]
        parts = np.repeat(np.arange(len(chosen), dtype=np.int16), [len(pairs) for pairs in chosen])
        order = rng.permutation(len(parts)).astype(np.int32)
        return Draws(parts[order], np.concatenate([*chosen, np.empty(0, np.int32)])[order])

    def _choose(self, corpus: Corpus, rng: np.random.Generator) -> np.ndarray:
        """Numbers of pairs: all of them as often as the weight's whole part says, some of them once more."""
        fitting = np.flatnonzero(corpus.fits(self.max_tokens)).astype(np.int32)
        whole = int(corpus.weight)
        extra = rng.random(len(fitting), np.float32) < corpus.weight - whole
        return np.concatenate([np.repeat(fitting, whole), fitting[extra]])

    def _window_items(self, window: Draws, rng: np.random.Generator) -> list[Item]:
        items: list[Item] = []
        for part, (c, d) in enumerate(self._parts):
            pairs = window.pairs[window.parts == part]
            # Variants stay alone: placeholders are numbered within one sentence, and quotes would meet in the middle.
            joinable = ~self.corpora[c].is_variant[pairs]
            joinable[int(len(pairs) * self.join_fraction) :] = False
            items += [(c, d, (pair,)) for pair in pairs[~joinable].tolist()]
            items += [(c, d, group) for group in self._join(self.corpora[c], pairs[joinable], rng)]
        return items

    def _join(self, corpus: Corpus, chosen: np.ndarray, rng: np.random.Generator) -> Iterator[tuple[int, ...]]:
        group: list[int] = []
        size, aim = 0, rng.integers(*JOINED_TOKENS)
        for i in chosen.tolist():
            length = max(len(corpus.first[i]), len(corpus.second[i]))
            if group and size + length > aim:
                yield tuple(group)
                group, size, aim = [], 0, rng.integers(*JOINED_TOKENS)
            group.append(i)
            size += length
        if group:
            yield tuple(group)

    def _bucket(self, items: list[Item], rng: np.random.Generator) -> Iterator[list[Item]]:
        if not items:
            return
        sizes = np.array([self._lengths(item) for item in items])  # [items, 2]
        order = np.lexsort((rng.random(len(items)), sizes[:, 1], sizes[:, 0]))
        ends = batch_ends(sizes[order], self.batch_tokens)
        spans = list(zip([0, *ends[:-1]], ends, strict=True))
        for i in rng.permutation(len(spans)).tolist():
            yield [items[j] for j in order[slice(*spans[i])].tolist()]

    def _sides(self, item: Item) -> tuple[list[np.ndarray], list[np.ndarray], tuple[int, ...]]:
        corpus, direction = self.corpora[item[0]], self.directions[item[1]]
        first, second = ([side[i] for i in item[2]] for side in (corpus.first, corpus.second))
        prefix = direction.prefix_ids
        if corpus.machine == direction.source:
            prefix = (*prefix, direction.machine_id)
        return (second, first, prefix) if direction.swapped else (first, second, prefix)

    def _lengths(self, item: Item) -> tuple[int, int]:
        source, target, prefix = self._sides(item)
        return sum(map(len, source)) + len(prefix) + 1, sum(map(len, target)) + 1

    def batch(self, items: Sequence[Item]) -> Batch:
        sources, inputs, outputs = [], [], []
        for item in items:
            source, target, prefix = self._sides(item)
            sources.append(np.concatenate([prefix, *source, [EOS_ID]]))
            inputs.append(np.concatenate([[BOS_ID], *target]))
            outputs.append(np.concatenate([*target, [EOS_ID]]))
        num_target = sum(map(len, outputs))
        return Batch(pad(sources), pad(inputs), pad(outputs), num_target, num_target + sum(map(len, sources)))


def batch_ends(sizes: np.ndarray, batch_tokens: int) -> list[int]:
    """sizes [items, 2], sorted: where each batch ends so that, padded, none has more tokens than asked for."""
    ends = [0]
    while (start := ends[-1]) < len(sizes):
        most = max(1, batch_tokens // (int(sizes[start, 0]) + 1))  # items, if all had this source and an empty target
        widest = np.maximum.accumulate(sizes[start : start + most])  # [n, 2]
        tokens = np.arange(1, len(widest) + 1) * widest.sum(1)
        ends.append(start + max(1, int(np.searchsorted(tokens, batch_tokens, "right"))))
    return ends[1:]


def pad(sequences: Sequence[np.ndarray] | Sequence[Sequence[int]]) -> torch.Tensor:
    width = max(map(len, sequences))
    padded = np.full((len(sequences), width), PAD_ID, np.int64)
    for row, sequence in enumerate(sequences):
        padded[row, : len(sequence)] = sequence
    return torch.from_numpy(padded)  # [B, width]
