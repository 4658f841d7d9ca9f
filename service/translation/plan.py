"""What goes to the model and what does not: a text as segments, a segment as units to decode with literals between.

Pure and synchronous, so that a long text can be planned on another thread. Decoding the units is left to `decoding.py`.

A unit is text with spans taken out. Where the bundle knows placeholders, spans go as placeholder ids. Where it does not
(an imported model), the spans stay in the text and must come out again as they went in. Either way, when they do not,
the unit is decoded again in pieces: the text between the spans by itself, the spans as literals, which cannot be lost.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dragoman.service.bundles.manifest import EXPLAIN
from dragoman.service.catalog.served import Hop
from dragoman.service.translation.capitals import is_shouted, shouted, spoken
from dragoman.service.translation.contract import SegmentWarning
from dragoman.service.translation.entities import read_entities
from dragoman.service.translation.glossary import Glossary
from dragoman.service.translation.patterns import Span, SpanKind
from dragoman.service.translation.placeholders import (
    Chunk,
    Part,
    all_kept,
    chunks_of,
    find_spans,
    laid_out,
    numbered,
    plain_text,
    put_back,
    spaced,
    spans_of,
)
from dragoman.service.translation.segments import SourceSegment, SplitText, split
from dragoman.service.translation.spelling import as_written_today
from dragoman.service.translation.tag_places import is_tag, tags_in_order, visible, without_tags
from dragoman.service.translation.tokenizer import UNKNOWN

# Marks at the edges of a piece belong to what stands beside it, and a model makes words of them; how a sentence ends
# is part of what it says.
_FRONT = re.compile(r"[\W_]*+")
_BACK = re.compile(r"[\s,;:(\[{\"'“‘«‹/–—-]*+")  # of the text from its end


@dataclass(frozen=True)
class Literal:
    """Goes into the translation as it is."""

    chunk: Chunk


class Unit(NamedTuple):
    """One decode of one hop."""

    chunks: tuple[Chunk, ...]
    spans: tuple[Span, ...]  # among the chunks
    source_ids: tuple[int, ...]
    as_text: bool  # spans went as text, because the bundle has no placeholders
    shouted: bool = False  # all in capitals, which no model reads well: it read small letters


Plan = tuple[Literal | Unit, ...]


class SegmentPlan(NamedTuple):
    parts: Plan
    warnings: tuple[SegmentWarning, ...] = ()

    @property
    def units(self) -> list[Unit]:
        return [part for part in self.parts if isinstance(part, Unit)]


class TextPlan(NamedTuple):
    split: SplitText
    segments: tuple[SegmentPlan, ...]


class Planner:
    """Plans for one hop; what the bundle recommends holds within what the server allows."""

    def __init__(self, hop: Hop, max_beam_size: int, target: str | None = None) -> None:
        """`target` is the language in the end, where this hop is not the last."""
        bundle = hop.served.bundle
        self._languages = hop.pair.source, target or hop.pair.target
        self.hop, self.tokenizer = hop, hop.served.tokenizer
        self._prefix_ids, self._eos_id = hop.pair.source_prefix_ids, bundle.source_special_ids.eos
        self._max_tokens = bundle.limits.max_source_tokens - len(self._prefix_ids) - 1
        self.can_explain = EXPLAIN in bundle.files
        self.default_beam_size = min(bundle.rules.default_beam_size, max_beam_size)

    def text(self, text: str, glossary: Glossary, split_sentences: bool) -> TextPlan:
        """How to translate a whole text."""
        reading = read_entities(text, find_spans(text, glossary) if "&" in text else ())
        text = reading.text
        spans = find_spans(text, glossary, self.tokenizer.known_characters, self._languages)
        parts = self._split(text, spans, split_sentences)
        plans = tuple(self._segment_plan(text, segment, spans) for segment in parts.segments)
        return TextPlan(reading.as_sent(parts), plans)

    def _segment_plan(self, text: str, segment: SourceSegment, spans: Sequence[Span]) -> SegmentPlan:
        chunks = chunks_of(text, segment.start, segment.end, spans)
        warnings = [SegmentWarning.SENTENCE_SPLIT] if segment.cut else []
        if spans and any(span.kind is SpanKind.UNKNOWN for span in spans_of(chunks)):
            warnings.append(SegmentWarning.UNKNOWN_COPIED)
        return SegmentPlan(self.segment(chunks), tuple(warnings))

    def _split(self, text: str, spans: Sequence[Span], split_sentences: bool) -> SplitText:
        def fits(start: int, end: int) -> bool:
            return self._fits(chunks_of(text, start, end, spans))

        return split(text, self.hop.pair.source, spans, fits, split_sentences)

    def segment(self, chunks: Sequence[Chunk]) -> Plan:
        """How to translate a segment that fits."""
        if not any(isinstance(chunk, str) and _has_letter(chunk) for chunk in chunks):
            return tuple(Literal(chunk) for chunk in chunks)
        unit = self._unit(tuple(chunks))
        if unit.spans and unit.as_text and any(map(self._is_unknown, unit.spans)):
            return self.pieces(chunks)
        return (unit,)

    def pieces(self, chunks: Sequence[Chunk]) -> Plan:
        """How to translate a segment so that no span can be lost: only the text between them goes to the model."""
        plan: list[Literal | Unit] = []
        for chunk in chunks:
            if isinstance(chunk, Span) or not _has_letter(chunk):
                plan.append(Literal(chunk))
                continue
            before, words, after = _edges(chunk)
            plan += [Literal(before), self._unit((words,)), Literal(after)]
        return tuple(part for part in plan if part != Literal(""))

    def without_tags(self, unit: Unit) -> Unit | None:
        """The unit as if it had no tags; None where it has none, or nothing else."""
        if unit.as_text or not any(map(is_tag, unit.spans)):
            return None
        chunks = without_tags(unit.chunks)
        has_words = any(isinstance(chunk, str) and _has_letter(chunk) for chunk in chunks)
        return self._unit(chunks) if has_words else None

    def reach(self, unit: Unit, ids: Sequence[int]) -> list[int]:
        """For each token of a source or a translation, how many characters it reaches to, blanks not counted."""
        reached: list[int] = []
        for place, token_id in enumerate(ids):
            text = self._text_of(unit, [token_id])
            if UNKNOWN in text:  # perhaps a byte of a character, which only its neighbours complete
                reached.append(visible(self._text_of(unit, ids[: place + 1])))
            else:
                reached.append((reached[-1] if reached else 0) + visible(text))
        return reached

    def _text_of(self, unit: Unit, ids: Sequence[int]) -> str:
        parts = self.tokenizer.decode_parts(ids)
        return "".join([unit.spans[part].text if isinstance(part, int) else part for part in parts])

    def document(self, chunks: Sequence[Chunk]) -> Plan:
        """How to translate what another hop gave: it may be several sentences, or too long for this one."""
        text, spans = laid_out(chunks)
        parts = self._split(text, spans, split_sentences=True)
        plan: list[Literal | Unit] = []
        position = 0
        for segment in parts.segments:
            plan += [Literal(chunk) for chunk in chunks_of(text, position, segment.start, spans)]
            plan += self.segment(chunks_of(text, segment.start, segment.end, spans))
            position = segment.end
        return (*plan, *(Literal(chunk) for chunk in chunks_of(text, position, len(text), spans)))

    def read(self, unit: Unit, ids: Sequence[int]) -> tuple[tuple[Chunk, ...], bool]:
        """The translation as text and spans, and whether every span is there exactly once."""
        chunks, kept = self._read(unit, ids)
        return (shouted(chunks) if unit.shouted else chunks), kept

    def _read(self, unit: Unit, ids: Sequence[int]) -> tuple[tuple[Chunk, ...], bool]:
        if not unit.spans:
            return _without_blanks([self.tokenizer.decode(ids)]), True
        if unit.as_text:
            return _find_spans(self.tokenizer.decode(ids), unit.spans)
        parts = self.tokenizer.decode_parts(ids)
        chunks = put_back(parts, unit.chunks)
        return chunks, all_kept(parts, len(unit.spans)) and tags_in_order(unit.chunks, chunks)

    def target_prefix_ids(self, prefix: str, unit: Unit) -> tuple[int, ...]:
        """The forced beginning of a translation, in whole words; spans that it quotes become their placeholders."""
        parts: list[Part] = []
        rest, unused = prefix.strip(), [] if unit.as_text else [(n, span.text) for n, span in enumerate(unit.spans)]
        while quoted := [(rest.find(text), -len(text), number) for number, text in unused if text and text in rest]:
            start, length, number = min(quoted)
            parts += [rest[:start], number]
            rest, unused = rest[start - length :], [each for each in unused if each[0] != number]
        return tuple(self.tokenizer.encode_target([part for part in (*parts, rest) if part != ""]))

    def token_text(self, unit: Unit, token_id: int) -> str:
        """How a token looks in a list of tokens: a placeholder as what it stands for."""
        match self.tokenizer.decode_parts([token_id]) if unit.spans else []:
            case [int(number)] if number < len(unit.spans):
                return unit.spans[number].text
        return self.tokenizer.token_text(token_id)

    def source_token_text(self, unit: Unit, token_id: int) -> str:
        """How a source token looks in a list of tokens: a placeholder as what it stands for."""
        token = self.tokenizer.source_token(token_id)
        return unit.spans[token].text if isinstance(token, int) else token

    def _unit(self, chunks: tuple[Chunk, ...]) -> Unit:
        as_text = not self.tokenizer.num_placeholders
        ids = self.tokenizer.encode(self._encodable(chunks))
        return Unit(chunks, spans_of(chunks), (*self._prefix_ids, *ids, self._eos_id), as_text, is_shouted(chunks))

    def _encodable(self, chunks: Sequence[Chunk]) -> list[Part]:
        source = self.hop.pair.source
        if is_shouted(chunks):
            chunks = spoken(chunks, source)
        # Spans stay as they are, also where they go as text: they must come out as they went in.
        chunks = [as_written_today(c, source, self._is_one_token) if isinstance(c, str) else c for c in chunks]
        if self.tokenizer.num_placeholders:
            return numbered(spaced(chunks))
        return [plain_text(chunks)]

    def _is_one_token(self, word: str) -> bool:
        return self.tokenizer.is_one_token(word)

    def _fits(self, chunks: Sequence[Chunk]) -> bool:
        spans, placeholders = spans_of(chunks), self.tokenizer.num_placeholders
        if placeholders and len(spans) > placeholders:
            return False
        # A token stands for at least one byte; most segments need no look at their tokens. Reading words as they are
        # written today changes no length.
        text = plain_text([chunk for chunk in chunks if isinstance(chunk, str)] if placeholders else chunks)
        if 2 * len(spans) + 1 + len(text.encode()) <= self._max_tokens:
            return True
        return len(self.tokenizer.encode(self._encodable(chunks))) <= self._max_tokens

    def _is_unknown(self, span: Span) -> bool:
        return not self.tokenizer.known_characters.issuperset(span.text)


def _edges(text: str) -> tuple[str, str, str]:
    """The marks before the words, the words, and the marks behind them; each end is read once."""
    start, length = _length(_FRONT, text), _length(_BACK, text[::-1])
    end = max(start, len(text) - length)
    return text[:start], text[start:end], text[end:]


def _length(marks: re.Pattern[str], text: str) -> int:
    found = marks.match(text)
    return found.end() if found else 0


def _has_letter(text: str) -> bool:
    return any(map(str.isalpha, text))


def _without_blanks(texts: Sequence[str]) -> tuple[Chunk, ...]:
    return tuple(text for text in texts if text)


def _find_spans(text: str, spans: Sequence[Span]) -> tuple[tuple[Chunk, ...], bool]:
    """Spans that went as text, found again in the translation; equal ones in the order of the source."""
    waiting: dict[str, list[Span]] = {}
    for span in spans:
        waiting.setdefault(span.text, []).append(span)
    longest_first = sorted((span_text for span_text in waiting if span_text), key=len, reverse=True)
    chunks: list[Chunk] = []
    for part in re.split("(" + "|".join(map(re.escape, longest_first)) + ")", text) if longest_first else [text]:
        found = waiting.get(part)
        chunks.append(found.pop(0) if found else part)
    kept = not any(waiting.values()) and not any(isinstance(chunk, str) and chunk in waiting for chunk in chunks)
    return tuple(chunk for chunk in chunks if chunk != ""), kept
