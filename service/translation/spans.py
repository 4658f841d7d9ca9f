"""A span: a part of the source that no model reads, and what stands for it in the translation.

They are found by `patterns.py` and what it asks, by `glossary.py` and by `numbers.py`; what becomes of them is left to
`placeholders.py`.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum


class SpanKind(StrEnum):
    ADDRESS = "address"  # URLs, domains, e-mail addresses
    EMOJI = "emoji"
    VARIABLE = "variable"  # {name}, %s, ${HOME}
    MARKUP = "markup"  # <b>, </b>, comments
    MARK = "mark"  # escaped tags and Markdown's underscores: in pairs, as tags are, but no elements
    ENTITY = "entity"
    HANDLE = "handle"  # @someone, #something
    PATH = "path"
    CODE = "code"  # between backticks, or in an element whose text is not prose
    BREAK = "break"  # block-level markup and blocks of code: no sentence runs across it
    IDENTIFIER = "identifier"  # long numbers, serial numbers, telephone numbers
    NUMBER = "number"  # amounts and dates, as the target language writes them
    CONTROL = "control"  # control characters and marks of writing direction
    GLOSSARY = "glossary"
    UNKNOWN = "unknown"  # characters that the tokenizer does not know


@dataclass(frozen=True)
class Span:
    """`text` stands in the translation for the characters from `start` to `end` of the source."""

    start: int
    end: int
    text: str
    kind: SpanKind


def outermost(ends: Mapping[int, int]) -> Iterator[tuple[int, int]]:
    """Of nested ranges, given as their starts with their ends, those that no other holds."""
    position = 0
    for start in sorted(ends):
        if start >= position:
            position = ends[start]
            yield start, position


def without_overlaps(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Leftmost first, then longest; of equals the first given."""
    chosen: list[Span] = []
    for span in sorted(spans, key=lambda span: (span.start, -span.end)):
        if not chosen or span.start >= chosen[-1].end:
            chosen.append(span)
    return tuple(chosen)
