"""Split text into segments so that it joins back exactly.

A segment is a range of the source. What lies between two segments is a separator and comes back as it was: line breaks,
tabs, indentation, bullets, numbering, blank lines, spaces, and spans at the edge of a segment that its sentence does
not need (an emoji, a pair of tags around the whole sentence). A sentence that is too long for the model is cut at
clauses, then at words, then anywhere, and its segments say so. No cut goes through a span.
"""

import bisect
import itertools
import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import sentencex

from dragoman.service.translation.markup import pair_tags, read_tag
from dragoman.service.translation.normalization import CLEANED
from dragoman.service.translation.spans import Span, SpanKind

# Line breaks of every kind, tabs, runs of spaces and bars that lay out columns: no sentence runs across them.
_HARD_BREAK = re.compile("(?:[\n\r\v\f\x1c-\x1f\x85\u2028\u2029\t]|[ \u00a0]{3,}|(?<=\\s)\\|(?=\\s))+")
# The library reads bytes and may cut other spaces in the middle; for a sentence they all mean the same.
_PLAIN_SPACES = {code: " " for code in range(0x80, 0x3001) if chr(code).isspace() and not _HARD_BREAK.match(chr(code))}
_BULLET = re.compile(r"(?:[-*+•‣◦▪▫●○–—>#|]{1,6}|\[[ xX]\]|\(?(?:\d{1,3}|[a-zA-Z]|[ivxIVX]{1,5})\)|\d{1,3}[.:])(?=\s)")
_CLAUSE_END = re.compile(r"[,;:)\]…—–،؛؟।۔](?=\s)|[，、；：。！？…]++[」』）】》〉”’]*+(?=.)")
# The library takes a closing quotation mark for the end; in `「はい。」と言った` the sentence goes on.
_QUOTED = re.compile(r"[」』）】》〉”’](?=\w)")
_MORE_ENDS = re.compile(r"[។៕།༎](?=\s)\s*+")  # Khmer and Tibetan, which the library does not split
# No line begins with these and no syllable ends with those: Thai and Lao vowels, small kana, marks of length.
_NOT_FIRST = frozenset("ะาำๅๆฯະາຳໆーっゃゅょゎァィゥェォッャュョヮ々ゝゞヽヾ、。，．！？；：」』）】》〉”’")
_NOT_LAST = frozenset("เแโใไເແໂໃໄ「『（【《〈“‘")
_WORD_END = re.compile(r"\S(?=\s)")
_BLANK_ENTITY = re.compile(r"&(?:nbsp|ensp|emsp|thinsp|bull|middot|shy|#160|#xa0);", re.IGNORECASE)

Range = tuple[int, int]
Fits = Callable[[int, int], bool]


class SourceSegment(NamedTuple):
    start: int
    end: int
    cut: bool  # a part of a sentence that was too long for the model


def separators(text: str, segments: Sequence[SourceSegment]) -> list[str]:
    """What stands before each segment, and after the last."""
    starts = [0, *[segment.end for segment in segments]]
    ends = [*[segment.start for segment in segments], len(text)]
    return [text[start:end] for start, end in zip(starts, ends, strict=True)]


def join(between: Sequence[str], texts: Sequence[str]) -> str:
    """The texts of all segments with the separators around them; the segments' own sources give the source again."""
    parts = [part for pair in zip(between, texts, strict=False) for part in pair]
    return "".join([*parts, between[-1]])


def split(
    text: str,
    language: str,
    spans: Sequence[Span] = (),
    fits: Fits = lambda start, end: True,
    split_sentences: bool = True,
) -> tuple[SourceSegment, ...]:
    """`spans` are ordered and do not overlap; `fits(start, end)` says whether the model takes that range at once."""
    return tuple(_Splitter(text, language, spans, fits).segments(split_sentences))


class _Splitter:
    def __init__(self, text: str, language: str, spans: Sequence[Span], fits: Fits) -> None:
        self.text, self.language, self.spans, self.fits = text, language, spans, fits
        self.starts = [span.start for span in spans]
        self.masked = _mask(text, spans)

    def segments(self, split_sentences: bool) -> Iterator[SourceSegment]:
        for line in self._lines():
            for start, end in self._sentences(line) if split_sentences else [line]:
                start, end = self._trim(start, end)
                if not self._has_words(start, end):
                    continue
                if self.fits(start, end):
                    yield SourceSegment(start, end, cut=False)
                else:
                    yield from self._cut(start, end)

    def _lines(self) -> Iterator[Range]:
        position = 0
        for hard_break in _HARD_BREAK.finditer(self.masked):
            yield self._without_bullet(position, hard_break.start())
            position = hard_break.end()
        yield self._without_bullet(position, len(self.text))

    def _without_bullet(self, start: int, end: int) -> Range:
        while True:
            while start < end and self._is_blank(start):
                start += 1
            bullet = _BULLET.match(self.masked, start, end)
            if bullet is None or self._spans_in(start, bullet.end()):
                return start, end
            start = bullet.end()

    def _sentences(self, line: Range) -> Iterator[Range]:
        start, end = line
        masked = self.masked[start:end].translate(_PLAIN_SPACES)
        pieces = _segment(self.language, masked)
        if "".join(pieces) != masked:  # whatever the library does, no character may be lost
            pieces = [masked]
        ends = set(itertools.accumulate((len(piece) for piece in pieces), initial=start))
        ends -= {match.end() for match in _QUOTED.finditer(self.masked, start, end)}
        ends |= {match.end() for match in _MORE_ENDS.finditer(self.masked, start, end)}
        bounds = [position for position in sorted(ends) if not self._inside_span(position)]
        if len(bounds) <= 2:
            return iter([line])
        assert (bounds[0], bounds[-1]) == (start, end)
        return itertools.pairwise(bounds)

    def _trim(self, start: int, end: int) -> Range:
        """The range without blanks at its edges, and without spans there that its sentence does not need."""
        edges = _Edges(self._spans_in(start, end)) if self.spans else None
        while True:
            while start < end and self._is_blank(start):
                start += 1
            while start < end and self._is_blank(end - 1):
                end -= 1
            trimmed = edges.without(start, end) if edges else (start, end)
            if trimmed == (start, end):
                return trimmed
            start, end = trimmed

    def _has_words(self, start: int, end: int) -> bool:
        """Whether there is something to translate: a letter, or a span that is a translation itself."""
        position = start
        for span in self._spans_in(start, end) if self.spans else ():
            if span.kind.is_translated or _has_letter(self.text[position : span.start]):
                return True
            position = span.end
        return _has_letter(self.text[position:end])

    def _cut(self, start: int, end: int) -> Iterator[SourceSegment]:
        """Halve until every part fits. Halves may differ in size, but none is small."""
        middle = self._cut_position(start, end)
        if middle is None:
            yield SourceSegment(start, end, cut=True)  # a single character, or one span: nothing is left to cut
            return
        for part in ((start, middle), (middle, end)):
            part = self._trim(*part)
            if not self._has_words(*part):
                continue
            if self.fits(*part):
                yield SourceSegment(*part, cut=True)
            else:
                yield from self._cut(*part)

    def _cut_position(self, start: int, end: int) -> int | None:
        quarter, middle = (end - start) // 4, (start + end) // 2
        for boundary in (_CLAUSE_END, _WORD_END):
            ends = (match.end() for match in boundary.finditer(self.masked, start + quarter, end - quarter + 1))
            allowed = [end_at for end_at in ends if start < end_at < end and not self._inside_span(end_at)]
            if allowed:
                return min(allowed, key=lambda end_at: abs(end_at - middle))
        return self._nearest(start, middle, end, self._joins) or self._nearest(
            start, middle, end, lambda position: False
        )

    def _nearest(self, start: int, middle: int, end: int, refuse: Callable[[int], bool]) -> int | None:
        """The nearest place to cut that is not an end, not inside a span and not refused."""
        places = itertools.chain(range(max(middle, start + 1), end), range(min(middle, end) - 1, start, -1))
        return next((place for place in places if not self._inside_span(place) and not refuse(place)), None)

    def _joins(self, position: int) -> bool:
        """Whether a reader sees the characters around `position` as one: an accent, a joiner, a variation."""
        before, after = self.text[position - 1], self.text[position]
        if after in _NOT_FIRST or before in _NOT_LAST:
            return True
        return "\u200d" in (before, after) or unicodedata.category(after).startswith("M")

    def _is_blank(self, position: int) -> bool:
        """Spaces and layout hints: no model reads them as they are, so at the edge of a segment they are layout."""
        return self.text[position] in CLEANED and not self._covered(position)

    def _spans_in(self, start: int, end: int) -> Sequence[Span]:
        return self.spans[bisect.bisect_left(self.starts, start) : bisect.bisect_left(self.starts, end)]

    def _inside_span(self, position: int) -> bool:
        """Whether a cut at `position` would go through a span."""
        index = bisect.bisect_left(self.starts, position) - 1
        return index >= 0 and self.spans[index].end > position

    def _covered(self, position: int) -> bool:
        index = bisect.bisect_right(self.starts, position) - 1
        return index >= 0 and self.spans[index].end > position


def _mask(text: str, spans: Sequence[Span]) -> str:
    """The text with digits for spans, so that the points in an address end no sentence; blocks become line breaks."""
    if not spans:
        return text
    parts, position = [], 0
    for span in spans:
        filler = "\n" if span.kind.ends_sentences else "0"
        parts += [text[position : span.start], filler * (span.end - span.start)]
        position = span.end
    return "".join(parts) + text[position:]


def _has_letter(text: str) -> bool:
    return any(map(str.isalpha, text))


class _Edges:
    """The spans of a range that is trimmed from both ends. Tags are paired once, not at each step."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self._spans, self._first, self._last = spans, 0, len(spans) - 1
        tags = [place for place, span in enumerate(spans) if span.kind.is_tag]
        self._partners: dict[int, int] = {}
        for opening, closing in pair_tags([read_tag(spans[place].text) for place in tags]).items() if tags else ():
            self._partners[tags[opening]], self._partners[tags[closing]] = tags[closing], tags[opening]

    def without(self, start: int, end: int) -> Range:
        """The range without the span at its beginning, at its end, or the pair of tags around it."""
        if self._first > self._last:
            return start, end
        first, last = self._spans[self._first], self._spans[self._last]
        begins, ends = first.start == start, last.end == end
        if begins and ends and self._partners.get(self._first) == self._last:
            self._first, self._last = self._first + 1, self._last - 1
            return first.end, last.start
        if begins and self._is_loose(self._first):
            self._first += 1
            return first.end, end
        if ends and self._is_loose(self._last):
            self._last -= 1
            return start, last.start
        return start, end

    def _is_loose(self, place: int) -> bool:
        """Whether a span at the edge of a segment belongs to nothing inside it; a tag belongs to its partner."""
        span = self._spans[place]
        if span.kind is SpanKind.ENTITY:
            return _BLANK_ENTITY.fullmatch(span.text) is not None
        return place not in self._partners if span.kind.is_tag else span.kind.is_loose


def _segment(language: str, text: str) -> list[str]:
    """Sentences that join to the text; none if the library fails, which must not fail the request."""
    try:
        return sentencex.segment(language, text) if text else []
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # Rust's, which is no Exception
            raise
        return []
