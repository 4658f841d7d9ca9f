"""Text <-> ids, for each kind of tokenizer that a bundle may have; sentencepiece is known only here.

Source and target each have a vocabulary, which may be the same one. Encoding takes text in NFC with placeholder numbers
between; decoding gives them back. Streaming gives text that ends between words, and its pieces joined are exactly what
decoding at once gives.
"""

import codecs
import json
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import sentencepiece

from dragoman.service.bundles.manifest import Bundle, BundleError, SpecialIds
from dragoman.service.translation.normalization import CLEANED, clean
from dragoman.service.translation.writing import is_unspaced

WORD_MARK = "\u2581"  # SentencePiece writes a space as this
UNKNOWN = "\ufffd"  # an unknown token is shown, not dropped
_ORDINALS = "ºª"  # 2º is written 2nd in English: to spell it in bytes is better than to copy it


class Vocabulary(Protocol):
    """The tokens of one side, source or target. Both sides may be the same object."""

    @property
    def placeholder_ids(self) -> Sequence[int]:
        """The ids of the numbered placeholders; none where the model was not taught them."""

    @property
    def known_characters(self) -> frozenset[str]:
        """Characters with a token of their own; others become bytes or `unk`, which few models were taught."""

    @property
    def piece_bytes(self) -> Callable[[int], bytes]:
        """The UTF-8 bytes of a token, perhaps a part of a character; empty for control symbols."""

    def encode(self, parts: Sequence[str | int]) -> list[int]:
        """The ids of text with placeholder numbers in it, without prefix and end of sentence."""

    def token_text(self, token_id: int) -> str:
        """How a token looks in a list of tokens."""


class Tokenizer:
    """Text <-> ids: encodes with the vocabulary of the source side, decodes with that of the target side.

    Placeholder numbers stand among the text. `num_placeholders` is 0 where either side has no placeholders.
    """

    def __init__(self, source: Vocabulary, target: Vocabulary | None = None) -> None:
        """Without `target`, both sides share one vocabulary."""
        self._source, self._target = source, target or source
        self.num_placeholders = min(len(self._source.placeholder_ids), len(self._target.placeholder_ids))
        self.known_characters = self._source.known_characters
        self._numbers = {token_id: number for number, token_id in enumerate(self._target.placeholder_ids)}

    def encode(self, parts: Sequence[str | int]) -> list[int]:
        """Source ids, without prefix and end of sentence."""
        return self._source.encode(parts)

    def encode_target(self, parts: Sequence[str | int]) -> list[int]:
        """Target ids of whole words, for a forced prefix."""
        return self._target.encode(parts)

    def decode(self, ids: Sequence[int]) -> str:
        """The text alone, without blanks at either end: what `stream` gives, joined."""
        return _decode(self._target, ids)

    def decode_parts(self, ids: Sequence[int]) -> list[str | int]:
        """Text and placeholder numbers in order, without blanks at either end."""
        return _decode_parts(self._target, ids, self._numbers)

    def token_text(self, token_id: int) -> str:
        """How a target token looks in a list of tokens."""
        return self._target.token_text(token_id)

    def source_token(self, token_id: int) -> str | int:
        """How a source token looks in a list of tokens, or the number of the placeholder that it is."""
        ids = self._source.placeholder_ids
        return ids.index(token_id) if token_id in ids else self._source.token_text(token_id)

    def is_one_token(self, word: str) -> bool:
        """Whether the source side has a token for the whole word."""
        ids = self._source.encode([word])
        return len(ids) == 1 and _decode(self._source, ids) == word  # `unk` is one token, too

    def stream(self) -> "StreamDecoder":
        """A decoder for target tokens as they come."""
        return StreamDecoder(self._target)


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
    """How much of `text` may be sent: up to the blanks before the last word, which may still grow."""
    end = len(text)
    while end and not (text[end - 1].isspace() or is_unspaced(text[end - 1])):
        end -= 1
    if end and is_unspaced(text[end - 1]):
        end -= 1  # a combining mark may follow
        return end
    while end and text[end - 1].isspace():
        end -= 1
    return end


def _known(pieces: Iterable[str]) -> frozenset[str]:
    """Single characters, and their capitals: a vocabulary may lack the rare Ú, but a model that knows ú has seen it."""
    characters = {piece for piece in pieces if len(piece) == 1}
    capitals = {upper for character in characters if len(upper := character.upper()) == 1}
    return frozenset(characters | capitals | set(_ORDINALS)) | CLEANED


def _decode(vocabulary: Vocabulary, ids: Iterable[int]) -> str:
    return b"".join(map(vocabulary.piece_bytes, ids)).decode("utf-8", "replace").strip()


def _decode_parts(vocabulary: Vocabulary, ids: Sequence[int], numbers: Mapping[int, int]) -> list[str | int]:
    """The tokens between placeholders are read as UTF-8; blanks at either end of the whole are left out."""
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


def _read_pieces(processor: sentencepiece.SentencePieceProcessor) -> tuple[tuple[bytes, ...], list[str]]:
    """The bytes of each token, and the texts of those that are whole characters. All tokens in one call: one by one
    takes longer than reading the model."""
    ids = list(range(processor.get_piece_size()))
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
    return tuple(read), whole


class SentencePieceVocabulary:
    """Our own kind: no normalization by SentencePiece, one space before the text, byte fallback, control symbols."""

    def __init__(self, model: bytes, placeholder_ids: Sequence[int] = ()) -> None:
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        self.placeholder_ids = tuple(placeholder_ids)
        pieces, whole = _read_pieces(self._processor)
        self.known_characters = _known(whole)
        strange = [token_id for token_id in self.placeholder_ids if not 0 <= token_id < len(pieces)]
        if strange:
            raise ValueError(f"it has no token {strange[0]}, which should be a placeholder")
        self.piece_bytes = pieces.__getitem__

    def encode(self, parts: Sequence[str | int]) -> list[int]:
        # Training puts the space that begins every text before a placeholder too.
        ids: list[int] = self._processor.encode(" ") if parts and isinstance(parts[0], int) else []
        for position, part in enumerate(parts):
            if isinstance(part, int):
                ids.append(self.placeholder_ids[part])
            else:
                ids += self._processor.encode((" " if position == 0 else "") + clean(part))
        return ids

    def token_text(self, token_id: int) -> str:
        return str(self._processor.id_to_piece(token_id))


class PlainVocabulary:
    """One side of an imported model: a SentencePiece model as its maker trained it, with its own normalization."""

    placeholder_ids: Sequence[int] = ()

    def __init__(self, model: bytes) -> None:
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        self._pieces, whole = _read_pieces(self._processor)
        known = frozenset("".join(whole))
        # What the model's own normalization turns into characters that it knows, it knows as well.
        others = map(chr, range(0x80, 0x10000))
        also = {each for each in others if known.issuperset(unicodedata.normalize("NFKC", each))}
        self.known_characters = known | also | CLEANED

    def encode(self, parts: Sequence[str | int]) -> list[int]:
        assert all(isinstance(part, str) for part in parts), "this kind has no placeholders"
        ids: list[int] = self._processor.encode("".join(part for part in parts if isinstance(part, str)))
        return ids

    def token_text(self, token_id: int) -> str:
        return str(self._processor.id_to_piece(token_id)) if token_id < len(self._pieces) else ""

    def piece_bytes(self, token_id: int) -> bytes:
        return self._pieces[token_id] if token_id < len(self._pieces) else b""  # the id that begins a translation


class MarianVocabulary:
    """One side of an imported Marian model: a SentencePiece model, and a vocabulary that numbers its pieces."""

    placeholder_ids: Sequence[int] = ()

    def __init__(self, model: bytes, numbers: Mapping[str, int], unk_id: int) -> None:
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        self._ids, self._unk_id = dict(numbers), unk_id
        self._pieces = {token_id: piece for piece, token_id in numbers.items()}
        control = {piece for piece in numbers if piece.startswith("<") and piece.endswith(">") and len(piece) > 2}
        control |= {piece for piece in numbers if piece.startswith(">>") and piece.endswith("<<")}
        self._control_ids = frozenset(numbers[piece] for piece in control)
        self.known_characters = _known(piece.replace(WORD_MARK, "") for piece in numbers)

    def encode(self, parts: Sequence[str | int]) -> list[int]:
        assert all(isinstance(part, str) for part in parts), "this kind has no placeholders"
        text = clean("".join(part for part in parts if isinstance(part, str)))
        return [self._ids.get(piece, self._unk_id) for piece in self._processor.encode(text, out_type=str)]

    def token_text(self, token_id: int) -> str:
        return self._pieces.get(token_id, "")

    def piece_bytes(self, token_id: int) -> bytes:
        if token_id == self._unk_id:
            return UNKNOWN.encode()
        if token_id in self._control_ids:
            return b""
        return self._pieces.get(token_id, "").replace(WORD_MARK, " ").encode()


def load_tokenizer(bundle: Bundle) -> Tokenizer:
    """The tokenizer of a bundle; raises BundleError with one sentence when its files are not what they should be."""
    files = {role: bundle.path / name for role, name in bundle.tokenizer.files.items()}
    try:
        if "model" in files:
            return Tokenizer(_load(bundle, files, "model", bundle.special_ids))
        return Tokenizer(
            _load(bundle, files, "source", bundle.source_special_ids),
            _load(bundle, files, "target", bundle.special_ids),
        )
    except (KeyError, OSError, RuntimeError, ValueError) as error:
        raise BundleError(f"bundle {bundle.path} has an unusable tokenizer ({error}): export it again") from error


def _load(bundle: Bundle, files: Mapping[str, Path], role: str, special_ids: SpecialIds) -> Vocabulary:
    model = files[role].read_bytes()
    if bundle.tokenizer.kind == "sentencepiece":
        return SentencePieceVocabulary(model, special_ids.placeholder_ids)
    if bundle.tokenizer.kind == "plain_sentencepiece":
        return PlainVocabulary(model)
    numbers = files.get(f"{role}_vocabulary") or files["vocabulary"]
    return MarianVocabulary(model, json.loads(numbers.read_text("utf-8")), special_ids.unk)
