"""One corpus of a run: its tokens, how many pairs it has, and what was dropped of it and why."""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from dragoman.model.corpus import CorpusSpec, pairs_of
from dragoman.model.filters import Pair
from dragoman.model.shards import Corpus, Shard, ShardOptions, encode_pairs, encoded_corpus, filter_pairs
from dragoman.model.text import CorpusError
from dragoman.model.tokenizer import Tokenizer
from dragoman.model.train_options import TrainConfig

TOKENIZER_LINES_PER_CORPUS = 200_000


@dataclass(frozen=True)
class Dataset:
    spec: CorpusSpec
    corpus: Corpus
    num_pairs: int
    dropped: Counter[str]
    pairs: list[Pair] = field(default_factory=list)  # the text itself, where it is small

    def told(self) -> str:
        reasons = ", ".join(f"{count} {reason}" for reason, count in self.dropped.most_common()) or "nothing"
        return f"{self.spec.name}: {self.num_pairs} pairs, dropped {reasons}"

    def facts(self) -> dict[str, object]:
        return {
            "files": [side.name for side in self.spec.sides],
            "pairs": self.num_pairs,
            "dropped": dict(self.dropped),
            "weight": self.spec.weight,
            "machine_made": self.spec.machine,
            "into": self.spec.into,
        }


def open_dataset(shard: Shard, max_tokens: int) -> Dataset:
    corpus, facts = shard.load(), shard.facts()
    return measured(shard.spec, corpus, Counter(facts["dropped"]), facts["pairs"], max_tokens)


def read_dataset(spec: CorpusSpec, languages: Sequence[str], tokenizer: Tokenizer, config: TrainConfig) -> Dataset:
    """A small corpus, with its text."""
    pairs, dropped = filter_pairs(pairs_of(spec, languages))
    unique = list(dict.fromkeys(pairs))
    dropped += Counter(duplicate=len(pairs) - len(unique))
    corpus = encoded_corpus(encode_pairs(unique, spec, tokenizer, ShardOptions(0.0, config.seed)), spec)
    fits = corpus.fits(config.max_tokens).tolist()
    kept = [pair for pair, fit in zip(unique, fits, strict=True) if fit]
    dataset = measured(spec, corpus, dropped, len(unique), config.max_tokens)
    dataset.pairs.extend(kept)
    return dataset


def measured(spec: CorpusSpec, corpus: Corpus, dropped: Counter[str], num_pairs: int, max_tokens: int) -> Dataset:
    """`Batches` leaves out what has too many tokens: it is told like everything else that is dropped."""
    reasons = ", ".join(f"{count} {reason}" for reason, count in dropped.most_common())
    if not num_pairs:
        raise CorpusError(f"no pair of {spec.name} is left after filtering ({reasons})")
    kept = int(np.count_nonzero(corpus.fits(max_tokens) & ~corpus.is_variant))
    if not kept:
        raise CorpusError(
            f"all pairs of {spec.name} have more than {max_tokens} tokens on a side: "
            "split them into sentences, or give a higher --max-tokens"
        )
    return Dataset(spec, corpus, kept, dropped + Counter({f"over {max_tokens} tokens": num_pairs - kept}))


def sample_lines(specs: Sequence[CorpusSpec], languages: Sequence[str]) -> list[str]:
    """Both sides of pairs from everywhere in every corpus, to learn a vocabulary from."""
    rng = random.Random(1)
    lines = [side for spec in specs for pair in sample(pairs_of(spec, languages), rng) for side in pair]
    rng.shuffle(lines)
    return lines


def sample(pairs: Iterator[Pair], rng: random.Random) -> list[Pair]:
    """At most so many of a stream, each as likely as any other."""
    chosen: list[Pair] = []
    for number, pair in enumerate(pairs):
        if number < TOKENIZER_LINES_PER_CORPUS:
            chosen.append(pair)
        elif (place := rng.randrange(number + 1)) < TOKENIZER_LINES_PER_CORPUS:
            chosen[place] = pair
    return chosen
