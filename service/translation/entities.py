"""Read entities that are parts of words: `don&#39;t` is `don't`, `c&atilde;o` is `cão`.

With a placeholder in the middle of a word a model would read two halves. So letters, digits, apostrophes and quotation
marks are read, and the translation writes them as plain characters, which HTML and XML accept in text. Entities that
mean something to markup (`&lt;`, `&amp;`), blanks and signs stay as they are, and so does everything inside a span: the
value of an attribute, code. Segments are ranges of the text as it was sent; `as_sent` finds them there.
"""

import bisect
import html
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from dragoman.service.translation.normalization import CLEANED
from dragoman.service.translation.segments import SourceSegment
from dragoman.service.translation.spans import Span, SpanKind

_QUOTES = frozenset("'\"’‘‚‛“”„‟«»‹›′`´")
_ENDS = frozenset(".,;:!?)]}…")  # a quotation mark between a blank and one of these is no part of a word


class Reading(NamedTuple):
    """A text with some entities read as characters, and where those characters are."""

    text: str
    ends: tuple[int, ...]  # of the characters that were read, in `text`
    shifts: tuple[int, ...]  # how much longer the text was as sent: before the first of them, before the second, …

    def as_sent(self, segments: Sequence[SourceSegment]) -> tuple[SourceSegment, ...]:
        """The same segments, as ranges of the text as it was sent."""
        return tuple([SourceSegment(self._sent_at(start), self._sent_at(end), cut) for start, end, cut in segments])

    def _sent_at(self, position: int) -> int:
        return position + self.shifts[bisect.bisect_right(self.ends, position)]


def read_entities(text: str, spans: Iterable[Span]) -> Reading:
    """`spans` are the spans of the text as it was sent, in order. Only entities among them are read."""
    parts, ends, shifts = list[str](), list[int](), [0]
    position = 0
    for span, character in _readable(text, spans):
        parts += [text[position : span.start], character]
        position = span.end
        shifts.append(shifts[-1] + len(span.text) - 1)
        ends.append(span.end - shifts[-1])
    return Reading("".join(parts) + text[position:], tuple(ends), tuple(shifts))


def _readable(text: str, spans: Iterable[Span]) -> Iterator[tuple[Span, str]]:
    position, in_tag = 0, False
    for span in spans:
        in_tag = _is_in_tag(text[position : span.start] + span.text[:1], in_tag)
        position = span.end
        if span.kind is not SpanKind.ENTITY:
            in_tag = in_tag and not span.text.endswith(">")
            continue
        character = html.unescape(span.text)
        before, after = text[span.start - 1 : span.start], text[span.end : span.end + 1]
        if len(character) == 1 and not in_tag and _is_part_of_a_word(character, before, after):
            yield span, character


def _is_in_tag(text: str, in_tag: bool) -> bool:
    """Whether what follows `text` may be inside a tag that was not recognized.

    `<s&#99;ript>` is no script and must not become one.
    """
    last = max(text.rfind("<", 0, -1), text.rfind(">", 0, -1))
    return in_tag if last < 0 else text[last] == "<" and not text[last + 1].isspace()


def _is_part_of_a_word(character: str, before: str, after: str) -> bool:
    if unicodedata.category(character)[0] in "LM" or character.isdecimal():
        return True
    if character in _QUOTES:
        return not _is_blank(before) or not (_is_blank(after) or after in _ENDS)
    # Layout hints inside a word: a soft hyphen.
    return character in CLEANED and not character.isspace() and before.isalpha() and after.isalpha()


def _is_blank(neighbour: str) -> bool:
    return not neighbour or neighbour.isspace()
