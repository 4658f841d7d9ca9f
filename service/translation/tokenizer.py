"""Text <-> ids, for each tokenizer kind that a bundle may carry; the only file of the service that knows sentencepiece.

Encoding takes text in NFC with placeholder numbers between; decoding gives them back. Streaming gives text that ends
between words, and its pieces joined are exactly what decoding at once gives.
"""

import codecs
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import sentencepiece

from dragoman.service.bundles.manifest import Bundle, BundleError
from dragoman.service.catalog.served import Tokenizer
from dragoman.service.translation.normalization import CLEANED, clean

WORD_MARK = "\u2581"  # SentencePiece writes a space as this
UNKNOWN = "\ufffd"  # a token that stands for nothing we know is shown, not dropped
_ORDINALS = "ºª"  # 2º is 2nd elsewhere: better spelt in bytes than copied
# Scripts that put no spaces between words: every character may end a piece of stream.
_UNSPACED = (
    (0x0E00, 0x0EFF),
    (0x1000, 0x109F),
    (0x1780, 0x17FF),
    (0x2E80, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x20000, 0x3FFFF),
)


class Vocabulary(Protocol):
    """What decoding needs of a tokenizer kind."""

    def piece_bytes(self, token_id: int) -> bytes:
        """The UTF-8 bytes that the token stands for, perhaps a part of a character; empty for control symbols."""


class StreamDecoder:
    """Turns tokens into text as they come: whole characters, whole words, no blanks at either end."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""
        self._started = False

    def push(self, token_id: int) -> str:
        """The text that is complete now; often none."""
        self._held += self._utf8.decode(self._vocabulary.piece_bytes(token_id))
        end = _word_safe_end(self._held)
        ready, self._held = self._held[:end], self._held[end:]
        return self._without_leading_blanks(ready)

    def finish(self) -> str:
        """The rest, when no more tokens come."""
        ready = (self._held + self._utf8.decode(b"", final=True)).rstrip()
        self._held = ""
        return self._without_leading_blanks(ready)

    def _without_leading_blanks(self, text: str) -> str:
        if not self._started:
            text = text.lstrip()
            self._started = bool(text)
        return text


def _word_safe_end(text: str) -> int:
    """How much of `text` may go out: up to the blanks before the last word, which may still grow."""
    end = len(text)
    while end and not (text[end - 1].isspace() or _is_unspaced(text[end - 1])):
        end -= 1
    if end and _is_unspaced(text[end - 1]):
        end -= 1  # a combining mark may follow
        return end
    while end and text[end - 1].isspace():
        end -= 1
    return end


def _is_unspaced(character: str) -> bool:
    if character <= "\u0dff" or character.isspace():
        return False
    return any(first <= ord(character) <= last for first, last in _UNSPACED)


def _known(pieces: Iterable[str]) -> frozenset[str]:
    """Single characters, and their capitals: a vocabulary may lack the rare Ú, but a model that knows ú has seen it."""
    characters = {piece for piece in pieces if len(piece) == 1}
    capitals = {upper for character in characters if len(upper := character.upper()) == 1}
    return frozenset(characters | capitals | set(_ORDINALS)) | CLEANED


def _decode(pieces: Iterable[bytes]) -> str:
    return b"".join(pieces).decode("utf-8", "replace").strip()


def _decode_parts(vocabulary: Vocabulary, ids: Sequence[int], numbers: Mapping[int, int]) -> list[str | int]:
    """Groups of tokens between placeholders, each read as UTF-8; blanks at either end of the whole left out."""
    parts: list[str | int] = []
    pending = bytearray()
    for token_id in ids:
        number = numbers.get(token_id)
        if number is None:
            pending += vocabulary.piece_bytes(token_id)
            continue
        parts += [pending.decode("utf-8", "replace"), number]
        pending.clear()
    parts.append(pending.decode("utf-8", "replace"))
    if isinstance(first := parts[0], str):
        parts[0] = first.lstrip()
    if isinstance(last := parts[-1], str):
        parts[-1] = last.rstrip()
    return [part for part in parts if part != ""]


class SentencePieceTokenizer:
    """Our own kind: no normalization by SentencePiece, one space before the text, byte fallback, control symbols."""

    def __init__(self, model: bytes, placeholder_ids: Sequence[int] = ()) -> None:
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        self._placeholder_ids = tuple(placeholder_ids)
        self._numbers = {token_id: number for number, token_id in enumerate(placeholder_ids)}
        self._pieces, self.known_characters = self._read_pieces()
        self.num_placeholders = len(self._placeholder_ids)

    def encode(self, parts: Sequence[str | int]) -> list[int]:
        # Training puts the space that begins every text before a placeholder too.
        ids: list[int] = self._processor.encode(" ") if parts and isinstance(parts[0], int) else []
        for position, part in enumerate(parts):
            if isinstance(part, int):
                ids.append(self._placeholder_ids[part])
            else:
                ids += self._processor.encode((" " if position == 0 else "") + clean(part))
        return ids

    encode_target = encode

    def decode(self, ids: Sequence[int]) -> str:
        return _decode(map(self._pieces.__getitem__, ids))

    def decode_parts(self, ids: Sequence[int]) -> list[str | int]:
        return _decode_parts(self, ids, self._numbers)

    def token_text(self, token_id: int) -> str:
        return str(self._processor.id_to_piece(token_id))

    def stream(self) -> StreamDecoder:
        return StreamDecoder(self)

    def piece_bytes(self, token_id: int) -> bytes:
        return self._pieces[token_id]

    def _read_pieces(self) -> tuple[tuple[bytes, ...], frozenset[str]]:
        """What each token stands for, and the characters among them. Asked for all at once: one by one takes longer
        than reading the model."""
        ids, processor = list(range(self._processor.get_piece_size())), self._processor
        pieces: list[str] = processor.id_to_piece(ids)
        kinds = zip(pieces, processor.is_byte(ids), processor.is_unknown(ids), processor.is_control(ids), strict=True)
        read, whole = list[bytes](), list[str]()
        for piece, is_byte, is_unknown, is_control in kinds:
            if is_byte:
                read.append(bytes([int(piece[3:5], 16)]))
                continue
            text = UNKNOWN if is_unknown else "" if is_control else piece.replace(WORD_MARK, " ")
            whole.append(text)
            read.append(text.encode())
        return tuple(read), _known(whole)


class MarianTokenizer:
    """An imported Marian model: a SentencePiece model per side, and one vocabulary that numbers the pieces of both."""

    num_placeholders = 0

    def __init__(self, source_model: bytes, target_model: bytes, vocabulary: Mapping[str, int], unk_id: int) -> None:
        self._source = sentencepiece.SentencePieceProcessor(model_proto=source_model)
        self._target = sentencepiece.SentencePieceProcessor(model_proto=target_model)
        self._ids, self._unk_id = dict(vocabulary), unk_id
        self._pieces = {token_id: piece for piece, token_id in vocabulary.items()}
        control = {piece for piece in vocabulary if piece.startswith("<") and piece.endswith(">") and len(piece) > 2}
        control |= {piece for piece in vocabulary if piece.startswith(">>") and piece.endswith("<<")}
        self._control_ids = frozenset(vocabulary[piece] for piece in control)
        self.known_characters = _known(piece.replace(WORD_MARK, "") for piece in vocabulary)

    def encode(self, parts: Sequence[str | int]) -> list[int]:
        return self._encode(self._source, parts)

    def encode_target(self, parts: Sequence[str | int]) -> list[int]:
        return self._encode(self._target, parts)

    def decode(self, ids: Sequence[int]) -> str:
        return _decode(map(self.piece_bytes, ids))

    def decode_parts(self, ids: Sequence[int]) -> list[str | int]:
        return _decode_parts(self, ids, {})

    def token_text(self, token_id: int) -> str:
        return self._pieces.get(token_id, "")

    def stream(self) -> StreamDecoder:
        return StreamDecoder(self)

    def piece_bytes(self, token_id: int) -> bytes:
        if token_id == self._unk_id:
            return UNKNOWN.encode()
        if token_id in self._control_ids:
            return b""
        return self._pieces.get(token_id, "").replace(WORD_MARK, " ").encode()

    def _encode(self, processor: sentencepiece.SentencePieceProcessor, parts: Sequence[str | int]) -> list[int]:
        assert all(isinstance(part, str) for part in parts), "this kind has no placeholders"
        text = clean("".join(part for part in parts if isinstance(part, str)))
        return [self._ids.get(piece, self._unk_id) for piece in processor.encode(text, out_type=str)]


def load_tokenizer(bundle: Bundle) -> Tokenizer:
    """The tokenizer of a bundle; raises BundleError with one sentence when its files are not what they should be."""
    files = {role: bundle.path / name for role, name in bundle.tokenizer.files.items()}
    try:
        if bundle.tokenizer.kind == "marian":
            return _load_marian(files, bundle.special_ids.unk)
        return SentencePieceTokenizer(files["model"].read_bytes(), bundle.special_ids.placeholder_ids)
    except (KeyError, OSError, RuntimeError, ValueError) as error:
        raise BundleError(f"bundle {bundle.path} has an unusable tokenizer ({error}): export it again") from error


def _load_marian(files: Mapping[str, Path], unk_id: int) -> MarianTokenizer:
    vocabulary = json.loads(files["vocabulary"].read_text("utf-8"))
    return MarianTokenizer(files["source"].read_bytes(), files["target"].read_bytes(), vocabulary, unk_id)
