"""Text is tokenized once, block by block, and what lies on disk is the same however it came there."""

import dataclasses
import gzip
import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.model import shards, variants
from dragoman.model.batches import Batches, batch_ends, directions
from dragoman.model.corpus import CorpusSpec, pairs_of
from dragoman.model.filters import count_words, reason_to_drop
from dragoman.model.shards import Corpus, Shard, ShardOptions, encode_pairs, shard_of, write_missing, write_shard
from dragoman.model.text import CorpusError
from dragoman.model.tokenizer import Tokenizer
from dragoman.model.variants import vary

LANGUAGES = ("pt", "en")
OPTIONS = ShardOptions(0.1, 1, LANGUAGES)


def write_table(path: Path, pairs: Sequence[tuple[str, str]]) -> Path:
    path.write_text("".join(f"{a}\t{b}\n" for a, b in pairs), "utf-8")
    return path


def tokens(corpus: Corpus) -> list[tuple[list[int], list[int]]]:
    return [(corpus.first[i].tolist(), corpus.second[i].tolist()) for i in range(len(corpus.first))]


@pytest.fixture
def in_threads(monkeypatch: pytest.MonkeyPatch, tokenizer: Tokenizer) -> ThreadPoolExecutor:
    """Blocks of 50 pairs, tokenized by threads: what the processes do, without waiting for them to start."""
    monkeypatch.setattr(shards, "BLOCK_PAIRS", 50)
    shards._start_worker(tokenizer.model)
    return ThreadPoolExecutor(2)


def written(
    table: Path, parent: Path, tokenizer: Tokenizer, pool: ThreadPoolExecutor, text: str = "{};machine=pt"
) -> tuple[Shard, Corpus]:
    shard = shard_of(CorpusSpec.parse(text.format(table)), LANGUAGES, tokenizer, OPTIONS, parent)
    write_shard(shard, LANGUAGES, tokenizer, OPTIONS, pool, ahead=3)
    return shard, shard.load()


def test_blocks_come_together_without_repeated_pairs(
    tmp_path: Path, sentence_pairs: list, tokenizer: Tokenizer, in_threads: ThreadPoolExecutor
) -> None:
    """A pair that appears again in a later block is dropped, its twin with placeholders too, and both are told."""
    table = write_table(tmp_path / "a.tsv", [*sentence_pairs, *sentence_pairs[:120]])
    shard, corpus = written(table, tmp_path / "shards", tokenizer, in_threads)
    unique = list(dict.fromkeys(p for p in sentence_pairs if reason_to_drop(p, machine_made=True) is None))
    plain = [pair for pair, flag in zip(tokens(corpus), corpus.is_variant, strict=True) if not flag]
    assert plain == list(zip(*(tokenizer.encode_batch([p[side] for p in unique]) for side in (0, 1)), strict=True))
    assert shard.facts()["pairs"] == len(unique)
    assert shard.facts()["dropped"]["duplicate"] >= 119
    assert 0 < corpus.is_variant.sum() < len(unique) * 0.25
    assert not list(shard.folder.glob("block-*"))


def test_a_run_that_was_interrupted_goes_on_after_its_blocks(
    tmp_path: Path,
    sentence_pairs: list,
    tokenizer: Tokenizer,
    in_threads: ThreadPoolExecutor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Killed before the last block, it makes only what is missing, and ends with the same tokens."""
    table = write_table(tmp_path / "a.tsv", sentence_pairs)
    _, whole = written(table, tmp_path / "whole", tokenizer, in_threads)
    with monkeypatch.context() as patch:
        patch.setattr(shards, "assemble", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            written(table, tmp_path / "cut", tokenizer, in_threads)
    (cut,) = (tmp_path / "cut").iterdir()
    done = sorted(cut.glob("block-*"))
    done[1].unlink()
    times = {path: path.stat().st_mtime_ns for path in done[2:-1]}
    (cut / "block-00001.99.partial").write_bytes(b"half of a block")
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", lambda *_: None)
        _, again = written(table, tmp_path / "cut", tokenizer, in_threads)
    assert tokens(again) == tokens(whole)
    assert {path: path.stat().st_mtime_ns for path in times} == times


def test_other_text_or_options_make_another_shard(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """What was tokenized before must not be taken for what is asked for now."""
    spec = CorpusSpec.parse(str(write_table(tmp_path / "a.tsv", [("um", "one")])))

    def key(spec: CorpusSpec = spec, options: ShardOptions = OPTIONS) -> Path:
        return shard_of(spec, LANGUAGES, tokenizer, options, tmp_path).folder

    before = key()
    assert key() == before
    assert key(dataclasses.replace(spec, weight=0.5)) == before  # how often it is seen changes no token
    assert key(dataclasses.replace(spec, machine="pt")) != before
    assert key(options=ShardOptions(0.2, 1)) != before
    write_table(tmp_path / "a.tsv", [("um", "one"), ("dois", "two")])
    assert key() != before


def test_real_processes_tokenize_a_large_corpus(
    tmp_path: Path, sentence_pairs: list, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spawned, with nothing inherited but what they are given; a second call finds all done."""
    monkeypatch.setattr(shards, "BLOCK_PAIRS", 100)
    spec = CorpusSpec.parse(str(write_table(tmp_path / "a.tsv", sentence_pairs)))
    shard = shard_of(spec, LANGUAGES, tokenizer, OPTIONS, tmp_path / "shards")
    write_missing([shard], LANGUAGES, tokenizer, OPTIONS)
    assert shard.facts()["pairs"] == len(dict.fromkeys(sentence_pairs))
    written_at = (shard.folder / "facts.json").stat().st_mtime_ns
    write_missing([shard], LANGUAGES, tokenizer, OPTIONS)
    assert (shard.folder / "facts.json").stat().st_mtime_ns == written_at


def test_a_corpus_is_mapped_not_read(tmp_path: Path, sentence_pairs: list, tokenizer: Tokenizer) -> None:
    """Three million pairs took 11.8 GB of every process; now they take pages that all processes share."""
    spec = CorpusSpec.parse(str(write_table(tmp_path / "a.tsv", sentence_pairs)))
    shard = shard_of(spec, LANGUAGES, tokenizer, OPTIONS, tmp_path / "shards")
    write_missing([shard], LANGUAGES, tokenizer, OPTIONS)
    corpus = shard.load()
    for array in (corpus.first.flat, corpus.first.starts, corpus.second.flat, corpus.is_variant):
        assert isinstance(array, np.memmap)
    assert corpus.first.flat.dtype == np.uint16


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_packed_files_are_read_as_they_are(tmp_path: Path, suffix: str) -> None:
    """A crawl is never kept unpacked."""
    pack = gzip.compress if suffix == ".gz" else zstandard.ZstdCompressor().compress
    table = tmp_path / f"a.tsv{suffix}"
    table.write_bytes(pack(b"um\tone\ndois\ttwo\n"))
    spec = CorpusSpec.parse(str(table))
    assert list(pairs_of(spec, LANGUAGES)) == [("um", "one"), ("dois", "two")]
    table.write_bytes(table.read_bytes()[:-6])
    with pytest.raises(CorpusError, match="cannot be unpacked"):
        list(pairs_of(spec, LANGUAGES))


def test_a_side_may_be_a_column_elsewhere(tmp_path: Path) -> None:
    """The teacher's answers lie in one file, what it was asked in a column of another."""
    table = write_table(tmp_path / "real.tsv", [("um", "one"), ("dois", "two")])
    answers = tmp_path / "teacher.pt"
    answers.write_text("uma\nduas\n")
    spec = CorpusSpec.parse(f"{answers},{table}#2")
    assert list(pairs_of(spec, LANGUAGES)) == [("uma", "one"), ("duas", "two")]
    assert spec.name == "teacher.pt + real.tsv#2"
    with pytest.raises(CorpusError, match=r"line 1: 2 columns, there is no 3"):
        list(pairs_of(CorpusSpec.parse(f"{answers},{table}#3")))
    with pytest.raises(CorpusError, match="a column is a number from 1 on"):
        CorpusSpec.parse(f"{answers},{table}#en")


@pytest.mark.parametrize(
    ("pair", "reason"),
    [
        (("Custa 1.500 reais.", "It costs 1,500 reais."), None),
        (("Custa 1.500 reais.", "It costs 1,600 reais."), "other digits"),
        (
            ("Ele disse ontem que sim.", "He said yes, he said yes, he said yes, he said yes, he said yes"),
            "repeats itself",
        ),
        (("muito muito muito", "very very very"), None),
    ],
)
def test_a_machine_is_held_to_more(pair: tuple[str, str], reason: str | None) -> None:
    """Its faults are regular: a student would learn them at once. A person's numbers may be words."""
    assert reason_to_drop(pair, machine_made=True) == reason
    assert reason_to_drop(pair) is None


def test_scripts_without_spaces_are_measured_by_their_characters() -> None:
    """A Chinese sentence of forty characters is not one word, so it may have an English one of twenty beside it."""
    chinese = "这个城市的图书馆每天早上九点开门晚上八点关门周末也对所有居民免费开放"
    english = (
        "The city's library opens at nine every morning, closes at eight, and is free for all residents at weekends."
    )
    assert count_words(chinese) == 17
    assert reason_to_drop((chinese, english)) is None
    assert reason_to_drop((chinese * 7, english * 7)) == "too long"
    assert reason_to_drop(("好", english)) == "length ratio"
    assert count_words("บริษัท ABC จำกัด") == 7


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=200), st.integers(1, 400))
def test_batches_are_cut_within_their_budget(sizes: list[tuple[int, int]], budget: int) -> None:
    """A batch of several never has more padded tokens than asked for, nor room for the next item."""
    ordered = np.array(sorted(sizes))
    ends = batch_ends(ordered, budget)
    assert ends[-1] == len(ordered)
    for start, end in zip([0, *ends], ends, strict=False):
        assert start < end
        assert end - start == 1 or (end - start) * ordered[start:end].max(0).sum() <= budget
        if end < len(ordered):
            assert (end + 1 - start) * ordered[start : end + 1].max(0).sum() > budget


def test_an_epoch_in_windows_shows_every_pair_once(
    sentence_pairs: list, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a window is sorted at a time, so its edges must neither lose nor repeat anything."""
    monkeypatch.setattr("dragoman.model.batches.WINDOW_PAIRS", 64)
    spec = CorpusSpec.parse("a.tsv")
    corpus = shards.encoded_corpus(encode_pairs(sentence_pairs, spec, tokenizer, OPTIONS), spec)
    ways = directions([("pt", "en"), ("en", "pt")], LANGUAGES, tokenizer)
    items = [item for batch in Batches([corpus], ways, 600, join_fraction=0.3).epoch(0) for item in batch]
    for way in (0, 1):
        seen = sorted(i for _, d, group in items if d == way for i in group)
        assert seen == np.flatnonzero(corpus.fits(120)).tolist()


def test_a_corpus_is_varied_on_its_source_side(tmp_path: Path, sentence_pairs: list, tokenizer: Tokenizer) -> None:
    """Into English the Portuguese is written carelessly, and the other way round; the plain pairs stay."""
    table = write_table(tmp_path / "a.tsv", sentence_pairs)
    for into, source in (("en", 0), ("pt", 1)):
        spec = CorpusSpec.parse(f"{table};into={into};vary=0.9")
        encoded = encode_pairs(sentence_pairs, spec, tokenizer, ShardOptions(0.0, 1, LANGUAGES))
        sides = encoded.first, encoded.second
        varied = np.flatnonzero(encoded.is_variant)
        plain = [{tuple(side[i].tolist()) for i in np.flatnonzero(~encoded.is_variant)} for side in sides]
        assert len(varied) > 0.4 * len(sentence_pairs)
        changed = [
            sum(tuple(side[i].tolist()) not in known for i in varied) for side, known in zip(sides, plain, strict=True)
        ]
        assert changed[source] == len(varied) > changed[1 - source]
    with pytest.raises(CorpusError, match="say which side that is with into=LANGUAGE"):
        CorpusSpec.parse(f"{table};vary=0.5")


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=40), st.text(max_size=40), st.integers(0, 10**6))
def test_a_variant_never_fails_and_is_never_the_same(source: str, target: str, seed: int) -> None:
    """Whatever the text is; an unchanged pair would be seen twice for nothing."""
    assert vary(source, target, random.Random(seed)) != (source, target)


@pytest.mark.parametrize(
    ("change", "pair", "wanted"),
    [
        (variants.in_small_letters, ("Cancelar pedido", "Cancel order"), ("cancelar pedido", "cancel order")),
        (variants.in_small_letters, ("Onde fica o Rio?", "Where is Rio?"), ("onde fica o rio?", "Where is Rio?")),
        (variants.in_small_letters, ("CPF", "CPF"), ("cpf", "CPF")),
        (variants.without_accents, ("Não há pão.", "There is no bread."), ("Nao ha pao.", "There is no bread.")),
        (variants.without_stop, ("Olá.", "Hello."), ("Olá", "Hello")),
        (variants.without_stop, ("Olá.", "Hello"), ("Olá.", "Hello")),
        (variants.with_stop, ("Olá", "Hello"), ("Olá.", "Hello.")),
        (variants.with_capital, ("cancelar", "cancel"), ("Cancelar", "Cancel")),
    ],
)
def test_variants_are_what_people_write(change: Callable, pair: tuple[str, str], wanted: tuple[str, str]) -> None:
    """A label stays a label on both sides; a sentence is answered as a sentence."""
    assert change(*pair, random.Random(1)) == wanted
