"""Text survives: whatever goes in comes out, and control symbols are never parsed from text."""

import io
import unicodedata
from pathlib import Path

import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.model.recipe import read_tokenizer
from dragoman.model.text import CorpusError
from dragoman.model.tokenizer import (
    BOS_ID,
    EOS_ID,
    MACHINE_TAG,
    NUM_PLACEHOLDERS,
    PAD_ID,
    UNK_ID,
    Tokenizer,
    placeholder_tag,
    train_tokenizer,
)
from tests.data.make_tokenizers import path_of

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=40)


@settings(max_examples=200, deadline=None)
@given(text=TEXT)
def test_any_text_comes_back(tokenizer: Tokenizer, text: str) -> None:
    """No normalization but NFC, byte fallback for the rest: emoji, tabs and double spaces included."""
    assert tokenizer.decode(tokenizer.encode(text)) == unicodedata.normalize("NFC", text).replace("\u2581", " ")


@settings(max_examples=200, deadline=None)
@given(text=TEXT)
def test_text_never_becomes_a_control_symbol(tokenizer: Tokenizer, text: str) -> None:
    """A user who types <ph:0> or </s> gets text, not control over the decoder."""
    control = {PAD_ID, UNK_ID, BOS_ID, EOS_ID, *(tokenizer.placeholder_id(n) for n in range(32))}
    for attack in (text, f"<ph:0>{text}</s><pad><to:en><machine>"):
        assert not control & set(tokenizer.encode(attack))


def test_chunks_with_placeholders_keep_their_spaces(tokenizer: Tokenizer) -> None:
    """The service cuts text at placeholders; training must see exactly the same tokens."""
    ids = tokenizer.encode_chunks(["Envie para ", 0, " agora"])
    assert tokenizer.placeholder_id(0) in ids
    assert tokenizer.decode(ids) == "Envie para <ph:0> agora"


def test_batch_encoding_is_single_encoding(tokenizer: Tokenizer) -> None:
    """A faster way to the same ids."""
    texts = ["Bom dia!", "", "Não há 42 gatos."]
    assert tokenizer.encode_batch(texts) == [tokenizer.encode(text) for text in texts]


def test_digits_stand_alone(tokenizer: Tokenizer) -> None:
    """Numbers are copied digit by digit."""
    assert len(tokenizer.encode("2026")) >= 4


def test_same_text_gives_the_same_tokenizer(sentence_pairs: list[tuple[str, str]]) -> None:
    """A run can be repeated."""
    lines = [pair[0] for pair in sentence_pairs[:120]]
    assert train_tokenizer(lines, 500, ["pt"]) == train_tokenizer(lines, 500, ["pt"])


def test_too_many_pieces_for_the_text_is_a_clear_error() -> None:
    """SentencePiece's own abort would end the process without a word."""
    with pytest.raises(ValueError, match="could not learn 5000 pieces"):
        train_tokenizer(["um gato", "dois gatos"], 5000, ["pt"])


def test_unknown_symbols_are_refused(tokenizer: Tokenizer) -> None:
    """A tag that the tokenizer lacks must not silently become the unknown piece."""
    with pytest.raises(ValueError, match="no symbol <to:xx>"):
        tokenizer.symbol_id("<to:xx>")


OUR_IDS = {"pad_id": PAD_ID, "unk_id": UNK_ID, "bos_id": BOS_ID, "eos_id": EOS_ID}
OUR_SYMBOLS = [MACHINE_TAG, *map(placeholder_tag, range(NUM_PLACEHOLDERS))]


@pytest.mark.parametrize(
    "options",
    [{"control_symbols": OUR_SYMBOLS}, OUR_IDS, {**OUR_IDS, "user_defined_symbols": OUR_SYMBOLS}],
    ids=["other numbers", "no symbols", "symbols that can be typed"],
)
def test_a_tokenizer_that_others_made_is_refused(
    tmp_path: Path, sentence_pairs: list[tuple[str, str]], options: dict[str, object]
) -> None:
    """Padding, beginning and end are numbers to the network: with others it learned for hours that words end it."""
    model = io.BytesIO()
    lines = iter([pair[0] for pair in sentence_pairs[:80]])
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=lines, model_writer=model, vocab_size=200, minloglevel=2, hard_vocab_limit=False, **options
    )
    (tmp_path / "foreign.model").write_bytes(model.getvalue())
    with pytest.raises(
        CorpusError, match=r"foreign.model was not made by Dragoman.* leave --tokenizer out to learn one"
    ):
        read_tokenizer(tmp_path / "foreign.model")
    assert read_tokenizer(path_of(900)).is_ours()


def test_the_unknown_piece_of_a_foreign_tokenizer_is_no_symbol(sentence_pairs: list[tuple[str, str]]) -> None:
    """It has another number than ours, and passed for every symbol that was asked for."""
    model = io.BytesIO()
    lines = iter([pair[0] for pair in sentence_pairs[:80]])
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=lines, model_writer=model, vocab_size=200, minloglevel=2, hard_vocab_limit=False
    )
    with pytest.raises(ValueError, match="no symbol <machine>"):
        Tokenizer(model.getvalue()).symbol_id(MACHINE_TAG)
