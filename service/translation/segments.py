"""Split text into segments so that it joins back exactly, whatever stands between them.

A segment is a range of the source; what no segment covers is a separator and comes back as it was: line breaks, tabs,
indentation, bullets, numbering, blank lines, spaces, and things at a segment's edge that no sentence needs (an emoji, a
pair of tags around it). A sentence that does not fit the model is cut at clauses, then at words, then anywhere, and
says so. What must not be cut (`spans`) is found by `patterns.py` and `glossary.py`.
"""

import bisect
import itertools
import re
import unicodedata
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import sentencex

from dragoman.service.translation.normalization import CLEANED
from dragoman.service.translation.patterns import Span, SpanKind

# Line breaks of every kind, tabs, runs of spaces and bars that lay out columns: no sentence runs across them.
_HARD_BREAK = re.compile("(?:[\n\r\v\f\x1c-\x1f\x85\u2028\u2029\t]|[ \u00a0]{3,}|(?<=\\s)\\|(?=\\s))+")
# The library reads bytes, and stumbles over the middle of other spaces; for a sentence they are all the same.
_PLAIN_SPACES = {code: " " for code in range(0x80, 0x3001) if chr(code).isspace() and not _HARD_BREAK.match(chr(code))}
_BULLET = re.compile(r"(?:[-*+•‣◦▪▫●○–—>#|]{1,6}|\[[ xX]\]|\(?(?:\d{1,3}|[a-zA-Z]|[ivxIVX]{1,5})\)|\d{1,3}[.:])(?=\s)")
_CLAUSE_END = re.compile(r"[,;:)\]…—–](?=\s)|[，、；：。！？]")
_WORD_END = re.compile(r"\S(?=\s)")
_EDGE_KINDS = frozenset({SpanKind.EMOJI, SpanKind.CONTROL, SpanKind.BREAK})
_PAIRED_KINDS = frozenset({SpanKind.MARKUP, SpanKind.MARK})
_TRANSLATED = frozenset({SpanKind.GLOSSARY, SpanKind.NUMBER, SpanKind.UNKNOWN})  # not by a model
_BLANK_ENTITY = re.compile(r"&(?:nbsp|ensp|emsp|thinsp|bull|middot|shy|#160|#xa0);", re.IGNORECASE)
_TAG_NAME = re.compile(r"(?:<|&lt;)/?([\w:.-]+)|(_+)", re.IGNORECASE)  # underscores are in pairs, too

Range = tuple[int, int]
Fits = Callable[[int, int], bool]


class SourceSegment(NamedTuple):
    start: int
    end: int
    cut: bool  # a part of a sentence that was too long for the model


class SplitText(NamedTuple):
    text: str
    segments: tuple[SourceSegment, ...]

    def source(self, index: int) -> str:
        return self.text[self.segments[index].start : self.segments[index].end]

    def separator(self, index: int) -> str:
        """What stands before segment `index`; the last separator stands behind all segments."""
        start = self.segments[index - 1].end if index else 0
        end = self.segments[index].start if index < len(self.segments) else len(self.text)
        return self.text[start:end]

    def join(self, translations: Sequence[str]) -> str:
        """The text with each segment replaced; with the segments' own sources, exactly the text."""
        assert len(translations) == len(self.segments)
        parts = [part for index, text in enumerate(translations) for part in (self.separator(index), text)]
        return "".join(parts) + self.separator(len(self.segments))


def split(
    text: str,
    language: str,
    spans: Sequence[Span] = (),
    fits: Fits = lambda start, end: True,
    split_sentences: bool = True,
) -> SplitText:
    """`spans` are ordered and do not overlap; `fits(start, end)` says whether the model takes that range at once."""
    return SplitText(text, tuple(_Splitter(text, language, spans, fits).segments(split_sentences)))


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
        if len(pieces) < 2 or "".join(pieces) != masked:  # whatever the library does, no character may be lost
            return iter([line])
        ends = itertools.accumulate((len(piece) for piece in pieces), initial=start)
        bounds = [position for position in ends if not self._inside_span(position)]
        assert (bounds[0], bounds[-1]) == (start, end)
        return itertools.pairwise(bounds)

    def _trim(self, start: int, end: int) -> Range:
        """Leave blanks, and spans that no sentence needs, to the separators."""
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
        """Without a letter there is nothing to translate, except where a span is itself a translation."""
        position = start
        for span in self._spans_in(start, end) if self.spans else ():
            if span.kind in _TRANSLATED or _has_letter(self.text[position : span.start]):
                return True
            position = span.end
        return _has_letter(self.text[position:end])

    def _cut(self, start: int, end: int) -> Iterator[SourceSegment]:
        """Halve until every part fits; the halves need not be of the same size, but none is small."""
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
        """The nearest place to cut that is neither an end, nor inside a span, nor refused."""
        places = itertools.chain(range(max(middle, start + 1), end), range(min(middle, end) - 1, start, -1))
        return next((place for place in places if not self._inside_span(place) and not refuse(place)), None)

    def _joins(self, position: int) -> bool:
        """Whether the characters around `position` are one to the reader: an accent, a joiner, a variation."""
        before, after = self.text[position - 1], self.text[position]
        return "\u200d" in (before, after) or unicodedata.category(after).startswith("M")

    def _is_blank(self, position: int) -> bool:
        """What goes to no model as it is, spaces and layout hints, is layout at the edge of a segment."""
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
    """The text with digits for spans, so that the points of an address end no sentence; blocks become line breaks."""
    if not spans:
        return text
    parts, position = [], 0
    for span in spans:
        filler = "\n" if span.kind is SpanKind.BREAK else "0"
        parts += [text[position : span.start], filler * (span.end - span.start)]
        position = span.end
    return "".join(parts) + text[position:]


def _has_letter(text: str) -> bool:
    return any(map(str.isalpha, text))


def _tag_name(span: Span) -> str | None:
    match = _TAG_NAME.match(span.text) if span.kind in _PAIRED_KINDS else None
    return (match[1] or match[2]).lower() if match else None


class _Edges:
    """The spans of a range that is trimmed from both ends; what each step asks about all of them is counted once."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self._left = deque((span, _tag_name(span)) for span in spans)
        self._of_name = Counter(name for _, name in self._left)

    def without(self, start: int, end: int) -> Range:
        """The range without the span at its beginning, at its end, or the pair of tags around it."""
        if not self._left:
            return start, end
        (first, name), (last, last_name) = self._left[0], self._left[-1]
        begins, ends = first.start == start, last.end == end
        partners = first is not last and name is not None and name == last_name and self._of_name[name] == 2
        if begins and ends and partners:
            self._drop(first=True)
            self._drop(first=False)
            return first.end, last.start
        if begins and self._is_loose(first, name):
            self._drop(first=True)
            return first.end, end
        if ends and self._is_loose(last, last_name):
            self._drop(first=False)
            return start, last.start
        return start, end

    def _drop(self, *, first: bool) -> None:
        _, name = self._left.popleft() if first else self._left.pop()
        self._of_name[name] -= 1

    def _is_loose(self, span: Span, name: str | None) -> bool:
        """At the edge of a segment and bound to nothing in it; a tag is bound to its partner."""
        if span.kind is SpanKind.ENTITY:
            return _BLANK_ENTITY.fullmatch(span.text) is not None
        if span.kind not in _PAIRED_KINDS:
            return span.kind in _EDGE_KINDS
        return name is None or self._of_name[name] == 1


def _segment(language: str, text: str) -> list[str]:
    """Sentences that join to the text; none where the library fails, which must not cost a request."""
    try:
        return sentencex.segment(language, text) if text else []
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # Rust's, which is no Exception
            raise
        return []
