"""Train a SentencePiece model, and turn text into ids and back without losing a character.

SentencePiece normalizes nothing here: we compose the text to NFC, put one space before it (so that the first word looks
like a word in mid-sentence) and keep every other character. What the vocabulary lacks becomes bytes. Control symbols
(target tags, the tag of machine-made sources, placeholders) are inserted by id and never parsed from text.
"""

import io
import re
import unicodedata
from collections.abc import Iterable, Sequence

import sentencepiece

PAD_ID, UNK_ID, BOS_ID, EOS_ID = 0, 1, 2, 3
NUM_PLACEHOLDERS = 32
MACHINE_TAG = "<machine>"


def target_tag(language: str) -> str:
    return f"<to:{language}>"


def placeholder_tag(number: int) -> str:
    return f"<ph:{number}>"


def normalize(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def train_tokenizer(
    lines: Iterable[str], vocab_size: int, languages: Sequence[str], seed_lines: int = 2_000_000
) -> bytes:
    """Learn the vocabulary of all languages together; returns the SentencePiece model as bytes."""
    control = [target_tag(language) for language in languages] + [MACHINE_TAG]
    control += [placeholder_tag(number) for number in range(NUM_PLACEHOLDERS)]
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=(" " + normalize(line) for line in lines),
            model_writer=model,
            vocab_size=vocab_size,
            model_type="unigram",
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            add_dummy_prefix=False,
            split_digits=True,
            byte_fallback=True,
            character_coverage=0.9999,
            input_sentence_size=seed_lines,
            control_symbols=control,
            pad_id=PAD_ID,
            unk_id=UNK_ID,
            bos_id=BOS_ID,
            eos_id=EOS_ID,
            num_threads=1,  # more threads would make the result depend on their order
            minloglevel=2,
        )
    except RuntimeError as error:
        raise ValueError(
            f"SentencePiece could not learn {vocab_size} pieces from this text: {what_to_change(str(error))}"
        ) from error
    return model.getvalue()


def what_to_change(error: str) -> str:
    """SentencePiece tells too many pieces from too few in its words only; other words of it are passed on."""
    if most := re.search(r"size too high.* value <= (\d+)", error):
        return f"ask for at most {most[1]} with --vocab-size"
    if least := re.search(r"size is smaller than required_chars\. \d+ vs (\d+)", error):
        return f"its letters and the control symbols alone are more; ask for at least {least[1]} with --vocab-size"
    return error


class Tokenizer:
    def __init__(self, model: bytes) -> None:
        self.model = model
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)

    @property
    def vocab_size(self) -> int:
        return int(self._processor.get_piece_size())

    def symbol_id(self, symbol: str) -> int:
        found = int(self._processor.piece_to_id(symbol))
        if found == self._processor.unk_id():  # its own: that of a foreign tokenizer may have another number
            raise ValueError(f"this tokenizer has no symbol {symbol}; train it again with the languages you use")
        return found

    def is_ours(self) -> bool:
        """Made by `train_tokenizer`: what is fed to the network is looked up by these ids, not by name."""
        processor = self._processor
        ids = processor.pad_id(), processor.unk_id(), processor.bos_id(), processor.eos_id()
        control = [MACHINE_TAG, *map(placeholder_tag, range(NUM_PLACEHOLDERS))]
        return ids == (PAD_ID, UNK_ID, BOS_ID, EOS_ID) and all(
            processor.is_control(processor.piece_to_id(symbol)) for symbol in control
        )

    def placeholder_id(self, number: int) -> int:
        return self.symbol_id(placeholder_tag(number))

    def piece(self, piece_id: int) -> str:
        return str(self._processor.id_to_piece(piece_id))

    def spell(self, piece: str) -> list[int]:
        """The ids of a piece of another tokenizer: its own, where it has one, or those that spell it."""
        own = int(self._processor.piece_to_id(piece))
        if own != self._processor.unk_id() or (own == UNK_ID and piece == self.piece(UNK_ID)):
            return [own]
        return list(self._processor.encode(piece.replace("\u2581", " ")))

    def encode(self, text: str) -> list[int]:
        return self.encode_chunks([text])

    def encode_chunks(self, chunks: Sequence[str | int]) -> list[int]:
        """Text chunks and placeholder numbers in order; a space that borders a placeholder is a token of its own."""
        ids: list[int] = []
        for position, chunk in enumerate(chunks):
            if isinstance(chunk, int):
                ids.append(self.placeholder_id(chunk))
            elif chunk or position == 0:
                ids += self._processor.encode((" " if position == 0 else "") + normalize(chunk))
        return ids

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return list(self._processor.encode([" " + normalize(text) for text in texts]))

    def decode(self, ids: Sequence[int]) -> str:
        """Pieces joined, bytes read as UTF-8; control symbols are shown by their names, so nothing vanishes."""
        parts: list[bytes] = []
        for piece_id in ids:
            piece = self._processor.id_to_piece(int(piece_id))
            if self._processor.is_byte(int(piece_id)):
                parts.append(bytes([int(piece[3:5], 16)]))
            else:
                parts.append(piece.replace("\u2581", " ").encode())
        text = b"".join(parts).decode("utf-8", errors="replace")
        return text[1:] if text.startswith(" ") else text
