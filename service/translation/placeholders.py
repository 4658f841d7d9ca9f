"""Take spans out of a text and put them back: a span goes to the model as a numbered placeholder.

Numbers go into the token sequence as ids and are never parsed from text. `patterns.py` and `glossary.py` say what is
taken out. `plan.py` says what to try when a placeholder is lost.
"""

import bisect
import itertools
import operator
import re
from collections.abc import Iterator, Sequence

from dragoman.service.translation.glossary import NO_GLOSSARY, Glossary
from dragoman.service.translation.markup import read_tag
from dragoman.service.translation.normalization import clean, composed
from dragoman.service.translation.numbers import number_spans
from dragoman.service.translation.patterns import pattern_spans
from dragoman.service.translation.spans import Chunk, Span, SpanKind, without_overlaps
from dragoman.service.translation.writing import MARKS, SPACED_LETTER, UNSPACED_LETTER, is_hangul, is_unspaced

# A translation as it comes from the tokenizer: text, and the numbers of placeholders.
Part = str | int

_START = operator.attrgetter("start")
# Underscores around a word are marks of their own (_muito bom_); within it they make it a name (nome_do_campo).
_LETTERS = rf"(?:(?!_){SPACED_LETTER})++"
_TOKEN = re.compile(rf"{UNSPACED_LETTER}|_*+{_LETTERS}(?:_++{_LETTERS})++_*+|{_LETTERS}|_++|[^\w\s{MARKS}]|[{MARKS}]++")


def find_spans(
    text: str,
    glossary: Glossary = NO_GLOSSARY,
    known_characters: frozenset[str] | None = None,
    languages: tuple[str, str] | None = None,  # source and target: they may write numbers differently
) -> tuple[Span, ...]:
    """Everything to take out of `text`, in order, without overlaps; of equal extent the glossary's term wins."""
    numbers = number_spans(text, *languages) if languages else ()
    found = [*glossary.spans(text), *numbers, *pattern_spans(text)]
    spans = without_overlaps(found) if found else ()
    if known_characters is None or known_characters >= set(text):
        return spans
    return without_overlaps([*spans, *_unknown_spans(text, spans, known_characters)])


def _unknown_spans(text: str, taken: Sequence[Span], known: frozenset[str]) -> Iterator[Span]:
    """Words with characters that the tokenizer lacks: no model has learned them, so they are copied."""
    position, pending = 0, None
    for span in (*taken, None):
        end = len(text) if span is None else span.start
        for token in _TOKEN.finditer(text, position, end):
            if known.issuperset(composed(token.group())):
                continue
            if _flanks_a_word(token):
                yield Span(token.start(), token.end(), token.group(), SpanKind.MARK)
                continue
            if pending and pending[1] >= position and text[pending[1] : token.start()] in ("", " "):
                pending = pending[0], token.end()  # copied once, when the last is known
                continue
            if pending:
                yield _unknown_span(text, *pending)
            pending = token.span()
        position = end if span is None else span.end
    if pending:
        yield _unknown_span(text, *pending)


def _unknown_span(text: str, start: int, end: int) -> Span:
    return Span(start, end, text[start:end], SpanKind.UNKNOWN)


def _flanks_a_word(token: re.Match[str]) -> bool:
    text, start, end = token.string, token.start(), token.end()
    return not token.group().strip("_") and (text[start - 1 : start].isalnum() or text[end : end + 1].isalnum())


def chunks_of(text: str, start: int, end: int, spans: Sequence[Span]) -> tuple[Chunk, ...]:
    """The range as text and spans in turn; empty text is left out. No span runs across either end."""
    if not spans:
        return (text[start:end],) if start < end else ()
    chunks: list[Chunk] = []
    first, last = bisect.bisect_left(spans, start, key=_START), bisect.bisect_left(spans, end, key=_START)
    for span in spans[first:last]:
        if start < span.start:
            chunks.append(text[start : span.start])
        chunks.append(span)
        start = span.end
    if start < end:
        chunks.append(text[start:end])
    return tuple(chunks)


def laid_out(chunks: Sequence[Chunk]) -> tuple[str, list[Span]]:
    """One text, and the spans at their places in it."""
    text, spans = "", []
    for chunk in chunks:
        if isinstance(chunk, Span):
            spans.append(Span(len(text), len(text) + len(chunk.text), chunk.text, chunk.kind))
        text += chunk.text if isinstance(chunk, Span) else chunk
    return text, spans


def spans_of(chunks: Sequence[Chunk]) -> tuple[Span, ...]:
    """The spans in order: the placeholder's number is the span's index here."""
    return tuple([chunk for chunk in chunks if isinstance(chunk, Span)])


def spaced(chunks: Sequence[Chunk]) -> Sequence[Chunk]:
    """Adds a space between a tag and the word after it if there is none; `put_back` takes it away again."""
    if len(chunks) == 1:
        return chunks
    result: list[Chunk] = []
    apart = False  # the chunk before is a span that is no part of the word after it
    for chunk in chunks:
        if isinstance(chunk, str):
            result.append(f" {chunk}" if apart and _begins_word(chunk) else chunk)
            apart = False
        else:
            result.append(chunk)
            apart = chunk.kind.stands_apart
    return result


def numbered(chunks: Sequence[Chunk]) -> list[Part]:
    """Chunks as the tokenizer takes them: a placeholder's number instead of each span."""
    if len(chunks) == 1 and isinstance(chunks[0], str):  # as most are
        return [chunks[0]]
    number = itertools.count()
    return [next(number) if isinstance(chunk, Span) else chunk for chunk in chunks]


def all_kept(parts: Sequence[Part], num_placeholders: int) -> bool:
    """Whether every placeholder came back exactly once, and no other."""
    return sorted(part for part in parts if isinstance(part, int)) == list(range(num_placeholders))


def put_back(parts: Sequence[Part], chunks: Sequence[Chunk]) -> tuple[Chunk, ...]:
    """The translation with each span in its place and spaces where they belong; numbers without a span are dropped."""
    spans = spans_of(chunks)
    parts = [part for part in parts if (part < len(spans) if isinstance(part, int) else part)]
    neighbours = _Neighbours(chunks)
    restored: list[Chunk] = []
    for index, part in enumerate(parts):
        before = parts[index - 1] if index else ""
        if index and neighbours.need_space(before, part):
            restored.append(" ")
        if isinstance(part, int):
            restored.append(spans[part])
        else:
            restored.append(part.lstrip() if before in neighbours.spaced_after else part)
    return tuple([chunk for chunk in restored if chunk != ""])


def plain_text(chunks: Sequence[Chunk]) -> str:
    return "".join([chunk.text if isinstance(chunk, Span) else chunk for chunk in chunks])


class _Neighbours:
    """What stood beside each span in the source: decides whether a space is missing in the translation.

    A placeholder that touched a word in the source (`<b>word</b>`) may touch one again. All others get a space between
    them and a word. In scripts without spaces everything touches: only what a tag encloses touches the tag again there.
    Korean endings follow a placeholder without a space.
    """

    def __init__(self, chunks: Sequence[Chunk]) -> None:
        self.glued_before: set[int] = set()
        self.glued_after: set[int] = set()
        self.glued_pairs: set[tuple[int, int]] = set()
        parts: list[Part] = []
        spans = spans_of(chunks)
        for part in numbered(chunks):
            part = clean(part) if isinstance(part, str) else part
            if part != "":
                parts.append(part)
        for left, right in itertools.pairwise(parts):
            if isinstance(left, int) and isinstance(right, int):
                self.glued_pairs.add((left, right))
            elif isinstance(left, str) and isinstance(right, int) and _touches(left[-1], _closes(spans[right])):
                self.glued_before.add(right)
            elif isinstance(left, int) and isinstance(right, str) and _touches(right[0], _opens(spans[left])):
                self.glued_after.add(left)
        self.spaced_after = {number for number in self.glued_after if spans[number].kind.stands_apart}  # by `spaced`

    def need_space(self, left: Part, right: Part) -> bool:
        if isinstance(left, int):
            if isinstance(right, int):
                return (left, right) not in self.glued_pairs
            return _begins_word(right) and not is_hangul(right[0]) and left not in self.glued_after
        if isinstance(right, int):
            return _ends_word(left) and right not in self.glued_before
        return False


def _touches(letter: str, inside: bool) -> bool:
    """Whether a letter beside a span is to be beside it again; `inside` says that it is inside the span's element."""
    return letter.isalnum() and (inside or not is_unspaced(letter))


def _begins_word(text: str) -> bool:
    """With a letter of a script that has spaces between words."""
    return text[0].isalnum() and not is_unspaced(text[0])


def _ends_word(text: str) -> bool:
    return text[-1].isalnum() and not is_unspaced(text[-1])


def _opens(span: Span) -> bool:
    return span.kind.is_tag and not read_tag(span.text).closes


def _closes(span: Span) -> bool:
    return span.kind.is_tag and not read_tag(span.text).opens
