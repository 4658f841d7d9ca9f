"""Text survives the way to ids and back, and a stream says exactly what the whole says."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.model.tokenizer import Tokenizer as TrainingTokenizer
from dragoman.service.bundles.manifest import BundleError
from dragoman.service.translation.normalization import clean
from dragoman.service.translation.tokenizer import WORD_MARK, MarianTokenizer, load_tokenizer
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
def marian() -> MarianTokenizer:
    return MarianTokenizer(*marian_parts())


class TestMarian:
    """The kind of imported models: a model per side, one vocabulary, no placeholders, no bytes."""

    def test_text_comes_back(self, marian: MarianTokenizer) -> None:
        """Pieces are numbered by the vocabulary, not by either model."""
        text = sentences()[0][0]
        assert marian.decode(marian.encode([text])) == text

    def test_what_it_does_not_know_is_shown_not_dropped(self, marian: MarianTokenizer) -> None:
        """`unk` becomes a visible mark; such characters are not known, so the planner keeps them away."""
        assert "\ufffd" in marian.decode(marian.encode(["中"]))
        assert "中" not in marian.known_characters
        assert marian.num_placeholders == 0

    def test_its_stream_is_its_text(self, marian: MarianTokenizer) -> None:
        """The same promise for every kind."""
        rng = random.Random(1)
        for _ in range(50):
            ids = [rng.randrange(0, 300) for _ in range(12)]
            stream = marian.stream()
            assert "".join(map(stream.push, ids)) + stream.finish() == marian.decode(ids)


def marian_parts() -> tuple[bytes, bytes, dict[str, int], int]:
    import io

    import sentencepiece

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
