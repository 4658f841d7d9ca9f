"""Tokenized text on disk, read through the page cache: tokenized once, by all cores, and never held in memory.

    FOLDER/KEY/block-00012.npz   a block of pairs that is done; an interrupted run goes on after it
    FOLDER/KEY/first.npy ...     all blocks in one, without repeated pairs
    FOLDER/KEY/facts.json        how many pairs, and what was dropped; written last: with it the shard is whole

The key tells text, tokenizer and options apart, so several runs may share a folder.
"""

import hashlib
import json
import os
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from dataclasses import dataclass
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from dragoman.model.corpus import CorpusSpec, pairs_of
from dragoman.model.filters import Pair, reason_to_drop
from dragoman.model.placeholders import Chunks, with_placeholders
from dragoman.model.tokenizer import Tokenizer, normalize
from dragoman.model.variants import vary

BLOCK_PAIRS = 20_000
FORMAT = 1  # of the files below, and of what the filters drop: another number makes every shard anew
FACTS = "facts.json"


@dataclass(frozen=True)
class TokenLists:
    """Many token lists in one flat array: list i is `flat[starts[i]:starts[i + 1]]`."""

    flat: np.ndarray  # [tokens]
    starts: np.ndarray  # [lists + 1]

    @staticmethod
    def of(lists: Sequence[Sequence[int]]) -> "TokenLists":
        starts = np.zeros(len(lists) + 1, np.int64)
        np.cumsum([len(ids) for ids in lists], out=starts[1:])
        flat = np.fromiter((i for ids in lists for i in ids), np.int32, count=int(starts[-1]))
        return TokenLists(flat, starts)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, index: int) -> np.ndarray:
        return self.flat[self.starts[index] : self.starts[index + 1]]

    def lengths(self) -> np.ndarray:
        return np.diff(self.starts).astype(np.int32)  # [lists]


@dataclass(frozen=True)
class Corpus:
    """Tokenized pairs: plain ones, and some again with placeholders in them or as careless people write them."""

    first: TokenLists
    second: TokenLists
    is_variant: np.ndarray  # [pairs], bool
    weight: float
    machine: str | None
    into: str | None = None

    def fits(self, max_tokens: int) -> np.ndarray:
        """[pairs]: which have no more tokens than this on either side."""
        return np.maximum(self.first.lengths(), self.second.lengths()) <= max_tokens


@dataclass(frozen=True)
class ShardOptions:
    placeholder_fraction: float
    seed: int
    languages: tuple[str, ...] = ()  # of the two sides


@dataclass(frozen=True)
class Encoded:
    """Some pairs as tokens, and what was dropped of them."""

    first: TokenLists
    second: TokenLists
    is_variant: np.ndarray  # [pairs], bool
    keys: np.ndarray  # [pairs], uint64: equal for equal pairs
    dropped: Counter[str]


def encode_pairs(
    pairs: Iterable[Pair], spec: CorpusSpec, tokenizer: Tokenizer, options: ShardOptions, block: int = 0
) -> Encoded:
    """Filter and tokenize. A pair that also teaches placeholders appears a second time, with them."""
    rng = random.Random(f"{options.seed}/{block}")
    kept, dropped = filter_pairs(pairs, spec.machine is not None)
    sides = [tokenizer.encode_batch([pair[side] for pair in kept]) for side in (0, 1)]
    keys = [pair_key(pair) for pair in kept]
    for pair, key in zip(kept, keys[:], strict=True):
        for number, chunks in variants_of((normalize(pair[0]), normalize(pair[1])), spec, options, rng):
            for side, text in zip(sides, chunks, strict=True):
                side.append(tokenizer.encode_chunks(text))
            keys.append(key + number)  # beside the plain pair, and dropped together with a repeated one
    flags = np.arange(len(keys)) >= len(kept)
    return Encoded(TokenLists.of(sides[0]), TokenLists.of(sides[1]), flags, np.array(keys, np.uint64), dropped)


def variants_of(
    pair: Pair, spec: CorpusSpec, options: ShardOptions, rng: random.Random
) -> Iterator[tuple[int, tuple[Chunks, Chunks]]]:
    """What a pair is shown as besides itself, each with a number of its own."""
    if rng.random() < options.placeholder_fraction:
        yield 1, with_placeholders(pair, rng)
    if rng.random() < spec.vary:
        swapped = spec.into == options.languages[0]  # the source is the second side
        varied = vary(*reversed(pair), rng) if swapped else vary(*pair, rng)
        if varied is not None:
            first, second = reversed(varied) if swapped else varied
            yield 2, ([first], [second])


def filter_pairs(pairs: Iterable[Pair], machine_made: bool = False) -> tuple[list[Pair], Counter[str]]:
    """Keep what can teach; the counter says how many pairs were dropped, and why."""
    kept: list[Pair] = []
    dropped: Counter[str] = Counter()
    for pair in pairs:
        reason = reason_to_drop(pair, machine_made)
        if reason is None:
            kept.append(pair)
        else:
            dropped[reason] += 1
    return kept, dropped


def pair_key(pair: Pair) -> int:
    """64 bits: two of ten million pairs share them by chance once in 400,000 corpora."""
    digest = hashlib.blake2b("\t".join(pair).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") & ~3  # room for the numbers of variants


def first_of_each(keys: np.ndarray) -> np.ndarray:
    """[pairs] -> bool: which are not a repetition of an earlier one."""
    first = np.zeros(len(keys), bool)
    first[np.unique(keys, return_index=True)[1]] = True
    return first


def encoded_corpus(encoded: Encoded, spec: CorpusSpec) -> Corpus:
    """A small corpus in memory, repetitions and all."""
    return Corpus(encoded.first, encoded.second, encoded.is_variant, spec.weight, spec.machine, spec.into)


@dataclass(frozen=True)
class Shard:
    """One corpus, tokenized, on disk."""

    folder: Path
    spec: CorpusSpec

    @property
    def is_whole(self) -> bool:
        return (self.folder / FACTS).exists()

    def facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = json.loads((self.folder / FACTS).read_text())
        return facts

    def load(self) -> Corpus:
        def array(name: str) -> np.ndarray:
            return np.load(self.folder / f"{name}.npy", mmap_mode="r")

        first, second = (TokenLists(array(side), array(f"{side}-starts")) for side in ("first", "second"))
        spec = self.spec
        return Corpus(first, second, array("placeholders"), spec.weight, spec.machine, spec.into)


def shard_of(
    spec: CorpusSpec, languages: Sequence[str], tokenizer: Tokenizer, options: ShardOptions, parent: Path
) -> Shard:
    """Where the tokens of a corpus lie, or will. Changed text has another key: its size or its time differs."""
    files = []
    for side in spec.sides:
        stat = side.path.stat() if side.path.exists() else None
        files.append([str(side.path.resolve()), side.column, stat and stat.st_size, stat and stat.st_mtime_ns])
    tokens = hashlib.sha256(tokenizer.model).hexdigest()
    seen = [FORMAT, files, spec.machine, list(languages), tokens, options.placeholder_fraction, options.seed]
    if spec.vary:
        seen += [spec.into, spec.vary]
    key = hashlib.sha256(json.dumps(seen).encode()).hexdigest()[:16]
    return Shard(parent / f"{spec.sides[0].path.name}-{key}", spec)


_tokenizer: Tokenizer  # of a worker process


def _start_worker(model: bytes) -> None:
    global _tokenizer
    _tokenizer = Tokenizer(model)


def _encode_block(pairs: list[Pair], spec: CorpusSpec, options: ShardOptions, block: int, path: Path) -> None:
    save_block(path, encode_pairs(pairs, spec, _tokenizer, options, block))


def save_block(path: Path, encoded: Encoded) -> None:
    temporary = path.with_suffix(f".{os.getpid()}.partial")
    with temporary.open("wb") as file:
        np.savez(
            file,
            first=encoded.first.flat,
            first_lengths=encoded.first.lengths(),
            second=encoded.second.flat,
            second_lengths=encoded.second.lengths(),
            placeholders=encoded.is_variant,
            keys=encoded.keys,
            dropped=np.array(json.dumps(encoded.dropped)),
        )
    temporary.replace(path)


def tokenizing_processes(tokenizer: Tokenizer, count: int) -> ProcessPoolExecutor:
    # Not forked: torch may have threads already, and their locks would be copied as they are.
    return ProcessPoolExecutor(count, get_context("spawn"), _start_worker, (tokenizer.model,))


def write_shard(
    shard: Shard, languages: Sequence[str], tokenizer: Tokenizer, options: ShardOptions, pool: Executor, ahead: int
) -> None:
    """Tokenize a corpus into its folder; at most `ahead` blocks are in memory at once."""
    shard.folder.mkdir(parents=True, exist_ok=True)
    waiting: list[Future[None]] = []
    paths = []
    for block, pairs in enumerate(blocks(pairs_of(shard.spec, languages))):
        path = shard.folder / f"block-{block:05}.npz"
        paths.append(path)
        if len(pairs) < BLOCK_PAIRS:  # the last one, or all of a small corpus: not worth a process
            save_block(path, encode_pairs(pairs, shard.spec, tokenizer, options, block))
        elif not path.exists():
            waiting.append(pool.submit(_encode_block, pairs, shard.spec, options, block, path))
        if len(waiting) >= ahead:
            waiting.pop(0).result()
    for future in waiting:
        future.result()
    assemble(shard.folder, paths, tokenizer.vocab_size)


def blocks(pairs: Iterable[Pair]) -> Iterator[list[Pair]]:
    pairs = iter(pairs)
    while block := list(islice(pairs, BLOCK_PAIRS)):
        yield block


def assemble(folder: Path, paths: list[Path], vocab_size: int) -> None:
    """All blocks in one file for each array, without the pairs that came before. Reads one block at a time."""
    dropped: Counter[str] = Counter()
    keys, placeholders, lengths = [], [], {"first": list[np.ndarray](), "second": list[np.ndarray]()}
    for path in paths:
        with np.load(path) as block:
            keys.append(block["keys"])
            placeholders.append(block["placeholders"])
            dropped += Counter(json.loads(str(block["dropped"])))
            for side in lengths:
                lengths[side].append(block[f"{side}_lengths"])
    fresh = first_of_each(np.concatenate(keys))
    flags = np.concatenate(placeholders)
    kind = np.uint16 if vocab_size <= 2**16 else np.int32
    for side, parts in lengths.items():
        write_side(folder, side, paths, np.concatenate(parts), fresh, np.dtype(kind))
    np.save(folder / "placeholders.npy", flags[fresh])
    repeated = int((~fresh & ~flags).sum())
    facts = {"pairs": int((fresh & ~flags).sum()), "dropped": dict(dropped + Counter(duplicate=repeated))}
    (folder / f"{FACTS}.partial").write_text(json.dumps(facts))
    (folder / f"{FACTS}.partial").replace(folder / FACTS)
    for path in paths:
        path.unlink()


def write_side(
    folder: Path, side: str, paths: list[Path], lengths: np.ndarray, fresh: np.ndarray, kind: np.dtype[Any]
) -> None:
    starts = np.zeros(int(fresh.sum()) + 1, np.int64)
    np.cumsum(lengths[fresh], out=starts[1:])
    np.save(folder / f"{side}-starts.npy", starts)
    flat = np.lib.format.open_memmap(folder / f"{side}.npy", "w+", kind, (int(starts[-1]),))
    pair = position = 0
    for path in paths:
        with np.load(path) as block:
            tokens, counts = block[side], block[f"{side}_lengths"]
        kept = tokens[np.repeat(fresh[pair : pair + len(counts)], counts)]
        flat[position : position + len(kept)] = kept
        pair, position = pair + len(counts), position + len(kept)
    flat.flush()


def write_missing(
    shards: Sequence[Shard], languages: Sequence[str], tokenizer: Tokenizer, options: ShardOptions
) -> None:
    missing = [shard for shard in shards if not shard.is_whole]
    if not missing:
        return
    processes = os.cpu_count() or 1
    with tokenizing_processes(tokenizer, processes) as pool:
        for shard in missing:
            write_shard(shard, languages, tokenizer, options, pool, ahead=2 * processes)
