"""What all peers are: source ids in, target ids out. Text around it is the same for all, and counted for all."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from bench.harness import Work, cpu_seconds
from dragoman.model.tokenizer import EOS_ID, Tokenizer

Ids = list[int]
MAX_TOKENS = 128  # of a translation, end included: the same for everyone


class Peer(Protocol):
    name: str

    def translate_ids(self, sources: Sequence[Ids], beam_size: int) -> list[Ids]:
        """Sources end in eos; translations come without bos and eos, in the order of the sources."""


def encode(tokenizer: Tokenizer, texts: Sequence[str]) -> list[Ids]:
    # A batch of one would start SentencePiece's threads.
    encoded = [tokenizer.encode(texts[0])] if len(texts) == 1 else tokenizer.encode_batch(texts)
    return [[*ids, EOS_ID] for ids in encoded]


def translate(peer: Peer, tokenizer: Tokenizer, texts: Sequence[str], beam_size: int) -> list[str]:
    return [tokenizer.decode(ids) for ids in peer.translate_ids(encode(tokenizer, texts), beam_size)]


def work(peer: Peer, tokenizer: Tokenizer, texts: Sequence[str], beam_size: int) -> Work:
    """A whole file at once."""
    return lambda: translate(peer, tokenizer, texts, beam_size)


def in_batches(sources: Sequence[Ids], size: int) -> Iterator[list[int]]:
    """Indices of sources of like length, longest first, as peers without a scheduler of their own are used best."""
    order = sorted(range(len(sources)), key=lambda i: -len(sources[i]))
    for start in range(0, len(order), size):
        yield order[start : start + size]


def fastest(candidates: Iterable[Peer], measured: Callable[[Peer], Work], runs: int = 1) -> Peer:
    """The candidate that takes the least CPU time, after a warm-up."""
    best: tuple[float, Peer] | None = None
    for candidate in candidates:
        job = measured(candidate)
        job()
        seconds = min(cpu_seconds(job) for _ in range(runs))
        if best is None or seconds < best[0]:
            best = seconds, candidate
    assert best is not None, "no candidates"
    return best[1]


def agreement(translations: Sequence[Ids], reference: Sequence[Ids]) -> float:
    """The share of sentences that came out token for token the same."""
    same = sum(a == b for a, b in zip(translations, reference, strict=True))
    return same / len(reference)
