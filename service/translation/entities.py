"""Entities that stand for what people write words with, read as that: `don&#39;t` is `don't`, `c&atilde;o` is `cão`.

A model that met a placeholder in the middle of a word would read two halves of it. So letters, digits, apostrophes and
quotation marks are read, and the translation writes them plainly, which HTML and XML take in text. What means something
to markup (`&lt;`, `&amp;`), blanks and signs stay entities, and so does everything inside a span: an attribute's value,
code. Segments are ranges of the text as it was sent; `as_sent` finds them there.
"""

import bisect
import html
import unicodedata
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from dragoman.service.translation.normalization import CLEANED
from dragoman.service.translation.segments import SourceSegment, SplitText
from dragoman.service.translation.spans import Span, SpanKind

_QUOTES = frozenset("'\"’‘‚‛“”„‟«»‹›′`´")
_ENDS = frozenset(".,;:!?)]}…")  # of a sentence or a bracket: beside these alone a quotation mark is no part of a word


class Reading(NamedTuple):
    """A text without the entities that were read, and where they stood."""

    sent: str
    text: str
    ends: tuple[int, ...] = ()  # of the characters that were read, in `text`
    shifts: tuple[int, ...] = (0,)  # how much longer the text was as sent, up to the first of them, the second, …

    def as_sent(self, split: SplitText) -> SplitText:
        """The same segments, as ranges of the text as it was sent."""
        if not self.ends:
            return split
        segments = [SourceSegment(self._sent_at(start), self._sent_at(end), cut) for start, end, cut in split.segments]
        return SplitText(self.sent, tuple(segments))

    def _sent_at(self, position: int) -> int:
        return position + self.shifts[bisect.bisect_right(self.ends, position)]


def read_entities(text: str, spans: Iterable[Span]) -> Reading:
    """`spans` are those of the text as it was sent, in order; only entities among them are read."""
    parts, ends, shifts = list[str](), list[int](), [0]
    position = 0
    for span, character in _readable(text, spans):
        parts += [text[position : span.start], character]
        position = span.end
        shifts.append(shifts[-1] + len(span.text) - 1)
        ends.append(span.end - shifts[-1])
    return Reading(text, "".join(parts) + text[position:], tuple(ends), tuple(shifts)) if ends else Reading(text, text)


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
    """Whether what follows `text` may stand in a tag that nobody recognized.

    `<s&#99;ript>` is no script, and must not become one.
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
