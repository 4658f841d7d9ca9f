"""A span: a part of the source that no model reads, and the text that stands for it in the translation.

`patterns.py`, `markup.py`, `icu_messages.py`, `glossary.py` and `numbers.py` find spans. `placeholders.py` takes them
out of the text and puts them back. The kind of a span says how all of them treat it.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Flag, StrEnum, auto


class _Trait(Flag):
    TAG = auto()
    APART = auto()
    LOOSE = auto()
    BLOCK = auto()
    TRANSLATED = auto()


_NONE = _Trait(0)


class SpanKind(StrEnum):
    """What a span is. The attributes of a kind say what is done with its spans."""

    is_tag: bool  # it opens or closes something, so it belongs to another span of the same name
    stands_apart: bool  # it is no part of the word beside it: the model reads that word with a space before it
    is_loose: bool  # at the edge of a segment it is layout, and goes to the separator
    ends_sentences: bool  # no sentence runs across it
    is_translated: bool  # its text is already what the translation needs, so a segment of nothing else is translated

    def __new__(cls, name: str, traits: _Trait = _NONE) -> "SpanKind":
        kind = str.__new__(cls, name)
        kind._value_ = name
        kind.is_tag = _Trait.TAG in traits
        kind.stands_apart = _Trait.APART in traits
        kind.is_loose = _Trait.LOOSE in traits
        kind.ends_sentences = _Trait.BLOCK in traits
        kind.is_translated = _Trait.TRANSLATED in traits
        return kind

    ADDRESS = "address"  # URLs, domains, e-mail addresses
    EMOJI = "emoji", _Trait.APART | _Trait.LOOSE
    VARIABLE = "variable"  # {name}, %s, ${HOME}
    MARKUP = "markup", _Trait.TAG | _Trait.APART  # <b>, </b>, comments
    MARK = "mark", _Trait.TAG | _Trait.APART  # escaped tags and Markdown's underscores: paired, but no elements
    ENTITY = "entity", _Trait.APART
    HANDLE = "handle"  # @someone, #something
    PATH = "path"
    CODE = "code"  # between backticks, or in an element whose text is not prose
    BREAK = "break", _Trait.APART | _Trait.LOOSE | _Trait.BLOCK  # block-level markup and blocks of code
    IDENTIFIER = "identifier"  # long numbers, serial numbers, telephone numbers
    NUMBER = "number", _Trait.TRANSLATED  # amounts and dates, as the target language writes them
    CONTROL = "control", _Trait.APART | _Trait.LOOSE  # control characters and marks of writing direction
    GLOSSARY = "glossary", _Trait.TRANSLATED
    UNKNOWN = "unknown", _Trait.TRANSLATED  # characters that the tokenizer does not know: copied


@dataclass(frozen=True)
class Span:
    """`text` stands in the translation for the characters from `start` to `end` of the source."""

    start: int
    end: int
    text: str
    kind: SpanKind


# A source or a translation in parts: text, and the spans between.
Chunk = str | Span


def outermost(ends: Mapping[int, int]) -> Iterator[tuple[int, int]]:
    """The ranges that lie inside no other range. `ends` maps the start of each range to its end."""
    position = 0
    for start in sorted(ends):
        if start >= position:
            position = ends[start]
            yield start, position


def without_overlaps(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Of spans that overlap, the one that starts first; then the longest; then the one given first."""
    chosen: list[Span] = []
    for span in sorted(spans, key=lambda span: (span.start, -span.end)):
        if not chosen or span.start >= chosen[-1].end:
            chosen.append(span)
    return tuple(chosen)
