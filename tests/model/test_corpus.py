"""Text is read strictly, filtered with reasons, and taught to carry placeholders."""

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.model.batches import Batches, directions
from dragoman.model.corpus import CorpusSpec, Side, read_pairs
from dragoman.model.placeholders import Chunks, with_placeholders
from dragoman.model.shards import Corpus, ShardOptions, TokenLists, encode_pairs, encoded_corpus, filter_pairs
from dragoman.model.text import CorpusError
from dragoman.model.tokenizer import BOS_ID, EOS_ID, PAD_ID, Tokenizer


def write(path: Path, data: str | bytes) -> Path:
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def test_files_of_different_length_are_refused(tmp_path: Path) -> None:
    """One missing line would pair every later sentence with a stranger."""
    files = write(tmp_path / "a.pt", "um\ndois\n"), write(tmp_path / "a.en", "one\n")
    with pytest.raises(CorpusError, match=r"a\.pt has 2 lines and .*a\.en has 1"):
        read_pairs(files)


def test_broken_utf8_is_refused_with_its_line(tmp_path: Path) -> None:
    """Latin-1 files are common; the message says where and what to do."""
    files = write(tmp_path / "a.pt", b"um\nn\xe3o\n"), write(tmp_path / "a.en", "one\nno\n")
    with pytest.raises(CorpusError, match=r"a\.pt, line 2: byte 0xe3 is not UTF-8"):
        read_pairs(files)


def test_the_mark_before_utf8_is_no_text(tmp_path: Path) -> None:
    """Windows' programs write it: a table's first column had another name then, and both were learned the wrong way."""
    table = write(tmp_path / "a.tsv", b"\xef\xbb\xbfen\tpt\none\tum\n")
    assert read_pairs([table], ("pt", "en")) == [("um", "one")]
    files = write(tmp_path / "a.pt", b"\xef\xbb\xbfum\n"), write(tmp_path / "a.en", "one\n")
    assert read_pairs(files) == [("um", "one")]
    with pytest.raises(CorpusError, match=r"line 2: byte 0xe3"):
        read_pairs([write(tmp_path / "b.tsv", b"\xef\xbb\xbfa\tb\nn\xe3o\tno\n")])


@pytest.mark.parametrize("content", ["", "\n\n", "  \n", "\ufeff\n"])
def test_empty_files_are_refused(tmp_path: Path, content: str) -> None:
    """Training on nothing helps nobody."""
    with pytest.raises(CorpusError, match="is empty"):
        read_pairs([write(tmp_path / "a.tsv", content)])


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """Not a traceback."""
    with pytest.raises(CorpusError, match="cannot read"):
        read_pairs([tmp_path / "none.tsv"])


def test_a_tsv_with_three_columns_is_refused(tmp_path: Path) -> None:
    """Guessing which two are meant would be worse."""
    with pytest.raises(CorpusError, match="line 2: 3 columns"):
        read_pairs([write(tmp_path / "a.tsv", "a\tb\na\tb\tc\n")])


@pytest.mark.parametrize("header", ["pt\ten\n", "en\tpt\n", "pt\ten\r\n", ""])
def test_a_first_line_of_language_names_is_a_header(tmp_path: Path, header: str) -> None:
    """A table means the same to every command; one without names is in the order that the command tells."""
    row = "one\tum\n" if header.startswith("en") else "um\tone\n"
    assert read_pairs([write(tmp_path / "a.tsv", header + row)], ("pt", "en")) == [("um", "one")]


@pytest.mark.parametrize("first", [("pt", "de"), ("pt", "pt"), ("PT", "EN")])
def test_other_words_in_the_first_line_are_text(tmp_path: Path, first: tuple[str, str]) -> None:
    """Only the two codes of the command are names: whatever else stands there was written to be read."""
    table = write(tmp_path / "a.tsv", "\t".join(first) + "\num\tone\n")
    assert read_pairs([table], ("pt", "en")) == [first, ("um", "one")]


def test_a_table_of_nothing_but_names_is_refused(tmp_path: Path) -> None:
    """As an empty file is: there would be nothing to score."""
    with pytest.raises(CorpusError, match=r"a\.tsv names its columns and has no line below"):
        read_pairs([write(tmp_path / "a.tsv", "pt\ten\n")], ("pt", "en"))


def test_filter_says_what_it_dropped_and_why() -> None:
    """Nothing is lost silently, not even bad data."""
    long = " ".join(["palavra"] * 101)
    pairs = [("um", "one"), ("", "empty"), (long, long), ("a b c d e f g h i j", "x"), ("dois", "two")]
    kept, dropped = filter_pairs(pairs)
    assert kept == [("um", "one"), ("dois", "two")]
    assert dropped == {"empty": 1, "too long": 1, "length ratio": 1}


def test_corpus_specs_carry_weight_and_origin() -> None:
    """The mix is said on the command line."""
    spec = CorpusSpec.parse("m.tsv;machine=pt;weight=0.5;into=en")
    assert (spec.sides, spec.weight, spec.machine, spec.into) == ((Side(Path("m.tsv")),), 0.5, "pt", "en")
    for wrong in ("a.txt", "a,b,c", "a.tsv;colour=red"):
        with pytest.raises(CorpusError):
            CorpusSpec.parse(wrong)


@pytest.mark.parametrize("weight", ["0", "-1", "inf", "nan", "-inf"])
def test_a_weight_is_a_number_that_can_be_counted_with(weight: str) -> None:
    """None of these says how often a pair is to be seen; one of them took all memory."""
    with pytest.raises(CorpusError, match=f"the weight {weight} of corpus .* must be above 0 and finite"):
        CorpusSpec.parse(f"a.tsv;weight={weight}")


def text_of(chunks: Chunks) -> list[int]:
    return [chunk for chunk in chunks if isinstance(chunk, int)]


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 10**6), index=st.integers(0, 300))
def test_placeholders_stand_on_both_sides(sentence_pairs: list[tuple[str, str]], seed: int, index: int) -> None:
    """The model learns to copy: the same numbers on both sides, in the source's order, none twice."""
    source, target = with_placeholders(sentence_pairs[index], random.Random(seed))
    numbers = text_of(source)
    assert numbers
    assert numbers == sorted(set(numbers))
    assert sorted(text_of(target)) == numbers
    assert max(numbers) < 32


def test_shared_names_become_placeholders() -> None:
    """Names and numbers are what both languages write alike."""
    source, target = with_placeholders(("Marta tem 3 gatos.", "Marta has 3 cats."), random.Random(3))
    joined = "".join(c if isinstance(c, str) else "#" for c in source)
    assert joined in {"# tem # gatos.", "# tem 3 gatos.", "Marta tem # gatos."}
    assert "".join(c if isinstance(c, str) else "#" for c in target).count("#") == joined.count("#")


def tokenize(pairs: list[tuple[str, str]], spec: CorpusSpec, tokenizer: Tokenizer, fraction: float) -> Corpus:
    return encoded_corpus(encode_pairs(pairs, spec, tokenizer, ShardOptions(fraction, 1)), spec)


def make_batches(pairs: list[tuple[str, str]], tokenizer: Tokenizer, **options: float) -> Batches:
    spec = CorpusSpec.parse("a.tsv;machine=pt")
    corpus = tokenize(pairs, spec, tokenizer, 0.05)
    return Batches([corpus], directions([("pt", "en")], ("pt", "en"), tokenizer), 600, **options)  # type: ignore[arg-type]


def test_batches_hold_every_pair_once_within_the_budget(sentence_pairs: list, tokenizer: Tokenizer) -> None:
    """Bucketing must neither lose nor repeat anything, nor exceed the memory that was asked for."""
    batches = make_batches(sentence_pairs, tokenizer, max_tokens=100)
    corpus = batches.corpora[0]
    epoch = list(batches.epoch(0))
    seen = sorted(i for batch in epoch for item in batch for i in item[2])
    fits = [i for i in range(len(corpus.first)) if max(len(corpus.first[i]), len(corpus.second[i])) <= 100]
    assert seen == fits
    for items in epoch:
        batch = batches.batch(items)
        assert batch.source.numel() + batch.target_in.numel() <= 600 or len(items) == 1


def test_batches_are_shaped_for_teacher_forcing(sentence_pairs: list, tokenizer: Tokenizer) -> None:
    """The input is the output shifted by one; tags say that a machine wrote the source."""
    batches = make_batches(sentence_pairs, tokenizer)
    batch = batches.batch(next(batches.epoch(0)))
    assert (batch.target_in[:, 0] == BOS_ID).all()
    assert (batch.source[:, 0] == tokenizer.symbol_id("<machine>")).all()
    for given_row, wanted in zip(batch.target_in.tolist(), batch.target_out.tolist(), strict=True):
        length = wanted.index(EOS_ID)
        assert given_row[1 : length + 1] == wanted[:length]
        assert set(wanted[length + 1 :]) <= {PAD_ID}


def test_the_same_seed_gives_the_same_epoch_and_another_epoch_differs(
    sentence_pairs: list, tokenizer: Tokenizer
) -> None:
    """Resuming relies on it."""
    first, second = (make_batches(sentence_pairs, tokenizer, join_fraction=0.3) for _ in range(2))
    assert list(first.epoch(3)) == list(second.epoch(3))
    assert list(first.epoch(3)) != list(first.epoch(4))


def test_joined_sentences_are_longer_and_still_pairs(sentence_pairs: list, tokenizer: Tokenizer) -> None:
    """Short text must teach long requests."""
    batches = make_batches(sentence_pairs, tokenizer, join_fraction=0.5)
    joined = [item for batch in batches.epoch(0) for item in batch if len(item[2]) > 1]
    assert joined
    corpus = batches.corpora[0]
    for item in joined:
        assert not corpus.is_variant[list(item[2])].any()
        source = batches.batch([item]).source[0].tolist()
        assert source[1:-1] == [int(t) for i in item[2] for t in corpus.first[i]]


def test_two_directions_are_told_apart_by_tags(sentence_pairs: list, tokenizer: Tokenizer) -> None:
    """One model for both directions needs to be told which."""
    ways = directions([("pt", "en"), ("en", "pt")], ("pt", "en"), tokenizer)
    assert [way.prefix_ids for way in ways] == [(tokenizer.symbol_id("<to:en>"),), (tokenizer.symbol_id("<to:pt>"),)]
    assert [way.swapped for way in ways] == [False, True]


def test_a_corpus_may_teach_one_direction_only(sentence_pairs: list, tokenizer: Tokenizer) -> None:
    """Each direction has its own mix: what a machine wrote is worth more as a source than as a target."""
    ways = directions([("pt", "en"), ("en", "pt")], ("pt", "en"), tokenizer)
    specs = [CorpusSpec.parse(text) for text in ("a.tsv;into=pt", "b.tsv", "c.tsv;into=en")]
    corpora = [tokenize(sentence_pairs, spec, tokenizer, 0.0) for spec in specs]
    items = [item for batch in Batches(corpora, ways, 600).epoch(0) for item in batch]
    assert {item[:2] for item in items} == {(0, 1), (1, 0), (1, 1), (2, 0)}


def test_token_lists_come_back() -> None:
    """One flat array instead of a million lists."""
    lists = [[1, 2, 3], [], [4]]
    flat = TokenLists.of(lists)
    assert [flat[i].tolist() for i in range(3)] == lists
    assert flat.lengths().tolist() == [3, 0, 1]
