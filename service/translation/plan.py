"""What goes to the model, and how often: a text as segments, a segment as units, a unit as attempts.

Pure and synchronous, so that a long text can be planned on another thread. `decode.py` decodes the units.

A unit is text with spans taken out. A bundle that knows placeholders reads a placeholder id for each span. Other
bundles (imported models) read the spans as text, and must write them as they were. If a span is lost, the unit's next
attempt is decoded. The last attempt cannot lose a span: only the text between the spans goes to the model.
"""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from dragoman.service.bundles.manifest import EXPLAIN
from dragoman.service.catalog.served import Hop
from dragoman.service.translation.capitals import is_shouted, spoken
from dragoman.service.translation.contract import Detection, SegmentWarning
from dragoman.service.translation.entities import read_entities
from dragoman.service.translation.glossary import Glossary
from dragoman.service.translation.placeholders import (
    Part,
    chunks_of,
    find_spans,
    laid_out,
    numbered,
    plain_text,
    spaced,
    spans_of,
)
from dragoman.service.translation.segments import SourceSegment, split
from dragoman.service.translation.spans import Chunk, Span, SpanKind
from dragoman.service.translation.spelling import as_written_today
from dragoman.service.translation.tag_places import is_tag, without_tags
from dragoman.service.translation.unit import Plan, Unit

# Marks at the edges of a piece belong to what stands beside it, and a model makes words of them. The mark that ends a
# sentence stays: it is part of what the sentence says.
_FRONT = re.compile(r"[\W_]*+")
_BACK = re.compile(r"[\s,;:(\[{\"'“‘«‹/–—-]*+")  # of the text from its end

_BEAM_SIZE_AGAIN = 4  # of the attempt that looks for a hypothesis with all spans


class TextPlan(NamedTuple):
    """How to translate one text."""

    text: str
    segments: tuple[SourceSegment, ...]
    plans: tuple[Plan, ...]  # one for each segment, for the first hop
    first_translated: int | None  # the first segment that goes to a model: a target prefix begins it
    language: str
    detected: Detection | None
    planners: tuple["Planner", ...]  # one for each hop; none if the text is in the target language already

    @property
    def pivot(self) -> str | None:
        return self.planners[0].hop.pair.target if len(self.planners) > 1 else None

    def source(self, index: int) -> str:
        return self.text[self.segments[index].start : self.segments[index].end]

    def warnings(self, index: int) -> tuple[SegmentWarning, ...]:
        """What is known about a segment before it is decoded."""
        warnings = (SegmentWarning.SENTENCE_SPLIT,) if self.segments[index].cut else ()
        for part in self.plans[index]:
            for span in part.spans if isinstance(part, Unit) else (part,):
                if isinstance(span, Span) and span.kind is SpanKind.UNKNOWN:
                    return (*warnings, SegmentWarning.UNKNOWN_COPIED)
        return warnings


class Planner:
    """Plans for one hop. The beam size that the bundle recommends is limited to what the server allows."""

    def __init__(self, hop: Hop, max_beam_size: int, target: str | None = None, places_tags: bool = False) -> None:
        """`target` is the last language, if this hop is not the last. With `places_tags` a bundle that
        has an explain graph may be asked for the attention of a translation."""
        bundle = hop.served.bundle
        self._languages = hop.pair.source, target or hop.pair.target
        self.hop, self.tokenizer = hop, hop.served.tokenizer
        self._prefix_ids, self._end_ids = hop.pair.source_prefix_ids, bundle.source_end_ids
        self._max_tokens = bundle.limits.max_source_tokens - len(self._prefix_ids) - 1
        self._places_tags = places_tags and EXPLAIN in bundle.files
        self.default_beam_size = min(bundle.rules.default_beam_size, max_beam_size)
        self._beam_size_again = min(_BEAM_SIZE_AGAIN, max_beam_size)

    # Texts

    def text(
        self, text: str, glossary: Glossary, split_sentences: bool
    ) -> tuple[tuple[SourceSegment, ...], tuple[Plan, ...]]:
        """The segments of a whole text, and the plan of each."""
        reading = read_entities(text, find_spans(text, glossary)) if "&" in text else None
        if reading is not None:
            text = reading.text
        spans = find_spans(text, glossary, self.tokenizer.known_characters, self._languages)
        segments = self._split(text, spans, split_sentences)
        plans: list[Plan] = []
        for start, end, _ in segments:
            chunks = chunks_of(text, start, end, spans)
            plans.append(self.segment(chunks))
        return (segments if reading is None else reading.as_sent(segments)), tuple(plans)

    def document(self, chunks: Sequence[Chunk]) -> Plan:
        """How to translate what another hop gave: it may be several sentences, or too long for this hop."""
        text, spans = laid_out(chunks)
        plan: list[Chunk | Unit] = []
        position = 0
        for segment in self._split(text, spans, split_sentences=True):
            plan += chunks_of(text, position, segment.start, spans)
            plan += self.segment(chunks_of(text, segment.start, segment.end, spans))
            position = segment.end
        return (*plan, *chunks_of(text, position, len(text), spans))

    def segment(self, chunks: tuple[Chunk, ...]) -> Plan:
        """How to translate a segment that fits."""
        if not _has_words(chunks):
            return chunks
        unit = self._unit(chunks)
        if unit.spans and unit.as_text and any(map(self._is_unknown, unit.spans)):
            return self._pieces(chunks)
        return (unit,)

    def _split(self, text: str, spans: Sequence[Span], split_sentences: bool) -> tuple[SourceSegment, ...]:
        def fits(start: int, end: int) -> bool:
            return self._fits(chunks_of(text, start, end, spans))

        return split(text, self.hop.pair.source, spans, fits, split_sentences)

    # Attempts

    def attempts(self, unit: Unit, beam_size: int, prefix: str | None = None) -> Iterator[Plan]:
        """Ways to translate a unit, the best first. Each is planned only when all before it have lost a span.

        1. Without its tags: the model's attention puts them back.
        2. With a placeholder for each span, or with the spans as text.
        3. The same with a beam, if the request asks for a narrower one: another hypothesis may have kept all spans.
        4. In pieces: only the text between the spans is decoded, so no span can be lost.

        `beam_size` is the request's, and `prefix` is what the translation must begin with.
        """
        quotes_tag = prefix is not None and any(is_tag(span) and span.text in prefix for span in unit.spans)
        bare = self._without_tags(unit) if self._places_tags and not quotes_tag else None
        if bare is not None:
            yield (bare,)
        yield (unit,)
        if beam_size < self._beam_size_again:
            yield (unit._replace(beam_size=self._beam_size_again),)
        yield self._pieces(unit.chunks)

    def _without_tags(self, unit: Unit) -> Unit | None:
        """The unit as if it had no tags; None if it has none, or nothing else."""
        if unit.as_text or not any(map(is_tag, unit.spans)):
            return None
        chunks = without_tags(unit.chunks)
        return self._unit(chunks)._replace(tagged=unit.chunks) if _has_words(chunks) else None

    def _pieces(self, chunks: Sequence[Chunk]) -> Plan:
        plan: list[Chunk | Unit] = []
        for chunk in chunks:
            if isinstance(chunk, Span) or not _has_letter(chunk):
                plan.append(chunk)
                continue
            before, words, after = _edges(chunk)
            plan += [before, self._unit((words,)), after]
        return tuple([part for part in plan if part != ""])

    # Units

    def _unit(self, chunks: tuple[Chunk, ...]) -> Unit:
        as_text = not self.tokenizer.num_placeholders
        ids = self.tokenizer.encode(self._encodable(chunks))
        return Unit(chunks, spans_of(chunks), (*self._prefix_ids, *ids, *self._end_ids), as_text, is_shouted(chunks))

    def target_prefix_ids(self, prefix: str, unit: Unit) -> tuple[int, ...]:
        """The forced beginning of a translation, in whole words; spans that it quotes become their placeholders."""
        parts: list[Part] = []
        rest, unused = prefix.strip(), [] if unit.as_text else [(n, span.text) for n, span in enumerate(unit.spans)]
        while quoted := [(rest.find(text), -len(text), number) for number, text in unused if text and text in rest]:
            start, length, number = min(quoted)
            parts += [rest[:start], number]
            rest, unused = rest[start - length :], [each for each in unused if each[0] != number]
        return tuple(self.tokenizer.encode_target([part for part in (*parts, rest) if part != ""]))

    def _encodable(self, chunks: Sequence[Chunk]) -> list[Part]:
        source = self.hop.pair.source
        if is_shouted(chunks):
            chunks = spoken(chunks, source)
        written: list[Chunk] = []
        for chunk in chunks:
            if isinstance(chunk, str):
                chunk = as_written_today(chunk, source, self._is_one_token)
            written.append(chunk)  # spans as they are, also if they go as text: they must come out as they went in
        if self.tokenizer.num_placeholders:
            return numbered(spaced(written))
        return [plain_text(written)]

    def _is_one_token(self, word: str) -> bool:
        return self.tokenizer.is_one_token(word)

    def _fits(self, chunks: Sequence[Chunk]) -> bool:
        spans, placeholders = spans_of(chunks), self.tokenizer.num_placeholders
        if placeholders and len(spans) > placeholders:
            return False
        # A token stands for at least one byte, so most segments fit without a look at their tokens. Reading words as
        # they are written today changes no length.
        text = plain_text([chunk for chunk in chunks if isinstance(chunk, str)] if placeholders else chunks)
        if 2 * len(spans) + 1 + len(text.encode()) <= self._max_tokens:
            return True
        return len(self.tokenizer.encode(self._encodable(chunks))) <= self._max_tokens

    def _is_unknown(self, span: Span) -> bool:
        return not self.tokenizer.known_characters.issuperset(span.text)


def _edges(text: str) -> tuple[str, str, str]:
    """The marks before the words, the words, and the marks after them; each end is read once."""
    start, length = _length(_FRONT, text), _length(_BACK, text[::-1])
    end = max(start, len(text) - length)
    return text[:start], text[start:end], text[end:]


def _length(marks: re.Pattern[str], text: str) -> int:
    found = marks.match(text)
    return found.end() if found else 0


def _has_words(chunks: Sequence[Chunk]) -> bool:
    return any(isinstance(chunk, str) and _has_letter(chunk) for chunk in chunks)


def _has_letter(text: str) -> bool:
    return any(map(str.isalpha, text))
