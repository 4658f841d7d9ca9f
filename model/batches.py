"""Which pairs an epoch shows, in which batches: weighted, joined, bucketed by length, and the same for the same seed.

A batch holds pairs of like length, so that almost nothing in it is padding. The order of an epoch depends only on the
seed and the epoch's number: a resumed run continues where it stopped by skipping batches, not by remembering them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from model.corpus import Corpus
from model.tokenizer import BOS_ID, EOS_ID, MACHINE_TAG, PAD_ID, Tokenizer, target_tag

JOINED_TOKENS = (20, 80)  # source tokens that a joined pair aims for
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

    def epoch(self, number: int) -> list[list[Item]]:
        """The batches of an epoch, in order."""
        rng = np.random.default_rng([self.seed, number])
        items: list[Item] = []
        for c, corpus in enumerate(self.corpora):
            for d, direction in enumerate(self.directions):
                if corpus.into in (None, direction.target):
                    items += self._items(c, corpus, d, rng)
        return self._bucket(items, rng) if items else []

    def _items(self, c: int, corpus: Corpus, d: int, rng: np.random.Generator) -> Iterator[Item]:
        chosen = np.repeat(np.arange(len(corpus.first)), int(corpus.weight))
        extra = corpus.weight - int(corpus.weight)
        chosen = np.concatenate([chosen, np.flatnonzero(rng.random(len(corpus.first)) < extra)])
        chosen = rng.permutation(chosen[corpus.fits(self.max_tokens)[chosen]])
        joined = int(len(chosen) * self.join_fraction)
        yield from ((c, d, (int(i),)) for i in chosen[joined:])
        yield from ((c, d, group) for group in self._join(corpus, chosen[:joined], rng))

    def _join(self, corpus: Corpus, chosen: np.ndarray, rng: np.random.Generator) -> Iterator[tuple[int, ...]]:
        lengths = np.maximum(corpus.first.lengths(), corpus.second.lengths())
        # Placeholders are numbered within one sentence: two sentences with the same numbers must not be joined.
        chosen = chosen[chosen < corpus.num_plain]
        group: list[int] = []
        size, aim = 0, rng.integers(*JOINED_TOKENS)
        for i in chosen.tolist():
            if group and size + lengths[i] > aim:
                yield tuple(group)
                group, size, aim = [], 0, rng.integers(*JOINED_TOKENS)
            group.append(i)
            size += int(lengths[i])
        if group:
            yield tuple(group)

    def _bucket(self, items: list[Item], rng: np.random.Generator) -> list[list[Item]]:
        sizes = np.array([self._lengths(item) for item in items])  # [items, 2]
        order = np.lexsort((rng.random(len(items)), sizes[:, 1], sizes[:, 0]))
        batches: list[list[Item]] = []
        batch: list[Item] = []
        widest = np.zeros(2, np.int64)
        for i in order.tolist():
            grown = np.maximum(widest, sizes[i])
            if batch and (len(batch) + 1) * int(grown.sum()) > self.batch_tokens:
                batches.append(batch)
                batch, grown = [], sizes[i]
            batch.append(items[i])
            widest = grown
        if batch:
            batches.append(batch)
        return [batches[i] for i in rng.permutation(len(batches))]

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


def pad(sequences: Sequence[np.ndarray] | Sequence[Sequence[int]]) -> torch.Tensor:
    width = max(map(len, sequences))
    padded = np.full((len(sequences), width), PAD_ID, np.int64)
    for row, sequence in enumerate(sequences):
        padded[row, : len(sequence)] = sequence
    return torch.from_numpy(padded)  # [B, width]
