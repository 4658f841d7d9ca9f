"""Text survives the way to ids and back, and a stream says exactly what the whole says."""

import io
import random
from dataclasses import replace
from functools import lru_cache
from json import dumps
from pathlib import Path

import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.model.tokenizer import Tokenizer as TrainingTokenizer
from dragoman.service.bundles.manifest import BundleError, SpecialIds, TokenizerFiles
from dragoman.service.translation.normalization import clean
from dragoman.service.translation.tokenizer import (
    WORD_MARK,
    MarianVocabulary,
    SentencePieceVocabulary,
    Tokenizer,
    load_tokenizer,
)
from tests.bundles.fakes import VOCAB_SIZE, sentences, tokenizer, tokenizer_model, write_bundle


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters=WORD_MARK), max_size=40))
@settings(max_examples=300, deadline=None)
def test_text_survives_the_way_to_ids_and_back(text: str) -> None:
    """Byte fallback: whatever the vocabulary lacks comes back; the mark for a space is kept away by its pattern."""
    assert tokenizer().decode(tokenizer().encode([text])) == clean(text).strip()


def test_training_and_serving_read_text_alike() -> None:
    """They share no code; a difference would be a model that is asked in a language it never saw."""
    training = TrainingTokenizer(tokenizer_model())
    for pair in sentences()[:200]:
        for text in pair:
            assert tokenizer().encode([text]) == training.encode(text)
    chunks: list[str | int] = ["", 3, " viu ", 4, ", que saiu."]
    assert tokenizer().encode(["Maria ", 0, " viu ", 1, "."]) == training.encode_chunks(["Maria ", 0, " viu ", 1, "."])
    assert tokenizer().encode(chunks[1:]) == training.encode_chunks(chunks)


@given(st.lists(st.integers(0, VOCAB_SIZE - 1), max_size=40))
@settings(max_examples=500, deadline=None)
def test_a_stream_joined_is_the_text_decoded_at_once(ids: list[int]) -> None:
    """Any ids at all: bytes that are no UTF-8, control symbols, blanks at either end."""
    stream = tokenizer().stream()
    pieces = [stream.push(token_id) for token_id in ids]
    assert "".join(pieces) + stream.finish() == tokenizer().decode(ids)


def test_a_stream_never_ends_in_mid_word_or_mid_character() -> None:
    """Readers see words, not syllables, and never half a character."""
    for text in ("O gato preto dormiu.", "Привет, мир 😀 e mais", "çãé üöä"):
        stream, seen = tokenizer().stream(), ""
        for token_id in tokenizer().encode([text]):
            seen += stream.push(token_id)
            assert text.startswith(seen)
            assert seen == "" or text[len(seen)].isspace()
        assert seen + stream.finish() == text


def test_scripts_without_spaces_stream_character_by_character() -> None:
    """Otherwise Chinese would come all at once."""
    stream = tokenizer().stream()
    pieces = [stream.push(token_id) for token_id in tokenizer().encode(["你好世界"])]
    assert "".join(pieces) == "你好世"
    assert stream.finish() == "界"


def test_placeholders_come_back_as_numbers_between_the_text() -> None:
    """Ids go in and numbers come out; no text is ever parsed for them."""
    parts: list[str | int] = ["Veja ", 1, " e ", 0, "."]
    assert tokenizer().decode_parts(tokenizer().encode(parts)) == parts
    literal = "Isto é <ph:0> escrito."
    assert tokenizer().decode_parts(tokenizer().encode([literal])) == [literal]


def test_known_characters_are_those_with_a_token_of_their_own() -> None:
    """Bytes do not count: a character that needs them was never learnt."""
    known = tokenizer().known_characters
    assert set("aZé ç.,\u00a0\u00ad") <= known
    assert not set("中Ж😀\x00") & known


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("um  dois\u00a0três", "um dois três"),
        (" e ", " e "),
        ("   ", " "),
        ("", ""),
        ("cafe\u0301", "café"),
        ("co\u00adordenar\u200b", "coordenar"),
    ],
)
def test_cleaning_composes_and_makes_plain_spaces(text: str, cleaned: str) -> None:
    """The model knows one kind of space; those beside a placeholder count."""
    assert clean(text) == cleaned


def test_a_bundle_without_its_tokenizer_says_what_to_do(tmp_path) -> None:  # type: ignore[no-untyped-def]
    """A damaged file is the bundle's fault, in one sentence."""
    bundle = write_bundle(tmp_path / "pt-en")
    (tmp_path / "pt-en" / "tokenizer.model").write_bytes(b"not a model")
    with pytest.raises(BundleError, match="unusable tokenizer"):
        load_tokenizer(bundle)


@pytest.fixture(scope="module")
def marian() -> Tokenizer:
    return marian_tokenizer(*marian_parts())


class TestMarian:
    """The kind of imported models: a model per side, one vocabulary, no placeholders, no bytes."""

    def test_text_comes_back(self, marian: Tokenizer) -> None:
        """Pieces are numbered by the vocabulary, not by either model."""
        text = sentences()[0][0]
        assert marian.decode(marian.encode([text])) == text

    def test_what_it_does_not_know_is_shown_not_dropped(self, marian: Tokenizer) -> None:
        """`unk` becomes a visible mark; such characters are not known, so the planner keeps them away."""
        assert "\ufffd" in marian.decode(marian.encode(["中"]))
        assert "中" not in marian.known_characters
        assert marian.num_placeholders == 0

    def test_its_stream_is_its_text(self, marian: Tokenizer) -> None:
        """The same promise for every kind."""
        rng = random.Random(1)
        for _ in range(50):
            ids = [rng.randrange(0, 300) for _ in range(12)]
            stream = marian.stream()
            assert "".join(map(stream.push, ids)) + stream.finish() == marian.decode(ids)


def marian_tokenizer(source: bytes, target: bytes, numbers: dict[str, int], unk_id: int) -> Tokenizer:
    return Tokenizer(MarianVocabulary(source, numbers, unk_id), MarianVocabulary(target, numbers, unk_id))


@lru_cache
def model_of(side: int, vocab_size: int) -> bytes:
    """A small model of one language: its own pieces, and placeholders at other ids than in the other language."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=(pair[side] for pair in sentences()),
        model_writer=model,
        vocab_size=vocab_size,
        control_symbols=[f"<x:{number}>" for number in range(9 * side)] + ["<ph:0>", "<ph:1>"],
        byte_fallback=True,
        normalization_rule_name="identity",
        add_dummy_prefix=False,
        remove_extra_whitespaces=False,
        minloglevel=2,
    )
    return model.getvalue()


def vocabulary_of(side: int, vocab_size: int, placeholders: bool = True) -> SentencePieceVocabulary:
    model = model_of(side, vocab_size)
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    ids = [processor.piece_to_id(f"<ph:{number}>") for number in range(2)]
    return SentencePieceVocabulary(model, ids if placeholders else ())


class TestTwoVocabularies:
    """Source and target have models of their own: the same id is another token on either side."""

    def test_each_side_reads_and_writes_by_its_own_model(self) -> None:
        """Text is encoded with the source's pieces, and ids of the target's pieces are decoded."""
        source, target = vocabulary_of(0, 420), vocabulary_of(1, 500)
        both = Tokenizer(source, target)
        portuguese, english = sentences()[0]
        assert both.encode([portuguese]) == Tokenizer(source).encode([portuguese])
        assert both.encode_target([english]) == Tokenizer(target).encode([english]) != both.encode([english])
        assert both.decode(both.encode_target([english])) == english
        assert both.decode(both.encode([portuguese])) != portuguese
        assert both.known_characters == source.known_characters

    def test_placeholders_have_a_number_and_an_id_on_each_side(self) -> None:
        """What goes in as one id comes out as another, and is the same span."""
        both = Tokenizer(vocabulary_of(0, 420), vocabulary_of(1, 500))
        parts: list[str | int] = ["Veja ", 1, " e ", 0, "."]
        assert both.num_placeholders == 2
        assert both.decode_parts(both.encode_target(parts)) == parts
        source_ids = both.encode(parts)
        assert [token for token in map(both.source_token, source_ids) if isinstance(token, int)] == [1, 0]
        assert [part for part in both.decode_parts(source_ids) if isinstance(part, int)] == []

    @pytest.mark.parametrize(("of_source", "of_target"), [(True, False), (False, True), (False, False)])
    def test_placeholders_that_one_side_lacks_are_none(self, of_source: bool, of_target: bool) -> None:
        """A model that reads them but cannot write them would lose what they stand for."""
        both = Tokenizer(vocabulary_of(0, 420, of_source), vocabulary_of(1, 500, of_target))
        assert both.num_placeholders == 0

    def test_a_stream_and_a_list_of_tokens_are_the_targets(self) -> None:
        """Two more ways out."""
        source, target = vocabulary_of(0, 420), vocabulary_of(1, 500)
        both, english = Tokenizer(source, target), sentences()[1][1]
        ids, stream = both.encode_target([english]), both.stream()
        assert "".join(map(stream.push, ids)) + stream.finish() == english
        assert [both.token_text(token_id) for token_id in ids] == [target.token_text(token_id) for token_id in ids]
        assert [both.source_token(token_id) for token_id in ids] == [source.token_text(token_id) for token_id in ids]

    def test_whole_words_are_looked_for_on_the_source_side(self) -> None:
        """What the target calls one token says nothing about the source."""
        both = Tokenizer(vocabulary_of(0, 420), vocabulary_of(1, 500))
        assert both.is_one_token("que")
        assert not both.is_one_token("the")
        assert Tokenizer(vocabulary_of(1, 500)).is_one_token("the")

    def test_a_bundle_names_a_file_and_special_ids_for_each_side(self, tmp_path: Path) -> None:
        """From the manifest to the text: nothing else need be told."""
        source, target = vocabulary_of(0, 420), vocabulary_of(1, 500)
        written = write_bundle(tmp_path / "pt-en")
        (written.path / "source.model").write_bytes(model_of(0, 420))
        (written.path / "target.model").write_bytes(model_of(1, 500))
        of_source = SpecialIds(0, 1, 2, 3, tuple(source.placeholder_ids))
        bundle = replace(
            written,
            tokenizer=TokenizerFiles("sentencepiece", {"source": "source.model", "target": "target.model"}, of_source),
            special_ids=SpecialIds(0, 1, 2, 3, tuple(target.placeholder_ids)),
        )
        both, parts = load_tokenizer(bundle), ["A porta ", 0, "."]
        assert both.encode(parts) == source.encode(parts)
        assert both.decode_parts(target.encode(parts)) == parts
        missing = replace(bundle, special_ids=SpecialIds(0, 1, 2, 3, (500,)))
        with pytest.raises(BundleError, match="no token 500, which should be a placeholder"):
            load_tokenizer(missing)

    def test_a_marian_bundle_may_number_each_side_by_itself(self, tmp_path: Path) -> None:
        """Some of those models have one vocabulary for both languages, some have two."""
        source, target, numbers, unk_id = marian_parts()
        shifted = {piece: (number + 1) % len(numbers) for piece, number in numbers.items()}
        written = write_bundle(tmp_path / "pt-en")
        files = {"source": "s.spm", "target": "t.spm", "source_vocabulary": "s.json", "target_vocabulary": "t.json"}
        contents = {"s.spm": source, "t.spm": target, "s.json": dumps(shifted), "t.json": dumps(numbers)}
        for name, content in contents.items():
            (written.path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        of_source = SpecialIds(0, (unk_id + 1) % len(numbers), 0, 0, ())
        marian = load_tokenizer(
            replace(
                written,
                tokenizer=TokenizerFiles("marian", files, of_source),
                special_ids=SpecialIds(0, unk_id, 0, 0, ()),
            )
        )
        shared = marian_tokenizer(source, target, numbers, unk_id)
        text, ids = sentences()[0][0], shared.encode([sentences()[0][0]])
        assert marian.encode([text]) == [(token_id + 1) % len(numbers) for token_id in ids]
        assert marian.decode(ids) == text


def marian_parts() -> tuple[bytes, bytes, dict[str, int], int]:
    models = []
    pieces: dict[str, int] = {"</s>": 0, "<unk>": 1}
    for side in (0, 1):
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=(pair[side] for pair in sentences()), model_writer=model, vocab_size=400, minloglevel=2
        )
        models.append(model.getvalue())
        processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
        for number in range(3, processor.get_piece_size()):
            pieces.setdefault(processor.id_to_piece(number), len(pieces))
    return models[0], models[1], pieces, 1
