"""Tags in a sentence: whether a translation kept them in order, and where they go if it was made without them.

A model loses tags more often than it loses sense, and translates the sentence well without them. The attention of that
translation tells which of its words come from which of the source's, so that a tag goes where its words went. Pure:
decoding, and asking for the attention, is left to `decoding.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dragoman.service.translation.placeholders import Chunk, chunks_of, laid_out
from dragoman.service.translation.spans import Span, SpanKind
from dragoman.service.translation.tags import VOID

Floats = npt.NDArray[np.float32]

_WORD = re.compile(r"\w+(?:['’-]\w+)*|[^\w\s]")
_NAME = re.compile(r"(?:<|&(?:lt|#60|#x3c);)(/?)([A-Za-z][\w:.-]*)", re.IGNORECASE)
_EMPTY = re.compile(r"/(?:>|&(?:gt|#62|#x3e);)$", re.IGNORECASE)
_TAGS = frozenset({SpanKind.MARKUP, SpanKind.MARK})
_EVEN = 0.5  # of a word's attention: with more of it the word belongs to an element


@dataclass
class _Tag:
    """A tag that stands by itself, or an element with what is in it; places are counted in words of the source."""

    opening: Span
    start: int
    end: int
    closing: Span | None = None
    speaks: bool = False  # there is more in it than marks
    inner: list[_Tag] = field(default_factory=list)

    @property
    def has_words(self) -> bool:
        return self.closing is not None and self.end > self.start


class Reach(NamedTuple):
    """How many characters, blanks not counted, each token of a sentence reaches to: one number for every token."""

    source: Sequence[int]
    target: Sequence[int]


class _Word(NamedTuple):
    """A word, a mark or a span of a text."""

    start: int  # in the text
    end: int
    first: int  # among its characters that are no blanks
    last: int  # the one behind
    speaks: bool  # it is no mark


def is_tag(chunk: Chunk) -> bool:
    return isinstance(chunk, Span) and chunk.kind in _TAGS


def without_tags(chunks: Sequence[Chunk]) -> tuple[Chunk, ...]:
    """The sentence as if it had none; texts that meet become one."""
    bare: list[Chunk] = []
    for chunk in chunks:
        if is_tag(chunk):
            continue
        if bare and isinstance(chunk, str) and isinstance(bare[-1], str):
            bare[-1] += chunk
        else:
            bare.append(chunk)
    return tuple(bare)


def tags_in_order(source: Sequence[Chunk], translation: Sequence[Chunk]) -> bool:
    """Whether elements of the translation are nested, and none was emptied; all tags are known to be there."""
    if not any(map(is_tag, source)):
        return True
    elements = _elements(source)
    places = {chunk: place for place, chunk in enumerate(translation) if isinstance(chunk, Span)}
    ends: list[int] = [len(translation)]
    for place, chunk in enumerate(translation):
        while place > ends[-1]:
            ends.pop()
        tag = elements.get(chunk) if isinstance(chunk, Span) else None
        if tag is None or tag.closing is None:
            continue
        end = places[tag.closing]
        if not place < end <= ends[-1] or (tag.speaks and not _says_something(translation[place + 1 : end])):
            return False
        ends.append(end)
    return True


def place_tags(
    source: Sequence[Chunk], translation: Sequence[Chunk], reach: Reach, attention: Floats
) -> tuple[Chunk, ...] | None:
    """The translation, made without tags, with those of the source; None where there is no word to put one around.

    `attention` is [target tokens, source tokens].
    """
    text, spans = laid_out(translation)
    source_words, words = _words(without_tags(source)), _words(translation)
    if not source_words or not words:
        return None
    weights = _by_words(attention, _words_of_tokens(words, reach.target), _words_of_tokens(source_words, reach.source))
    placed = _Placing(weights, [word.speaks for word in words]).place(_tree(source), 0, len(words))
    if placed is None:
        return None
    return tuple(_written(text, spans, words, placed, 0, len(text)))


# The source's tags


def _tree(chunks: Sequence[Chunk]) -> list[_Tag]:
    """Elements in elements; a tag without a partner stands by itself."""
    top: list[_Tag] = []
    open_: list[_Tag] = []
    words: list[_Word] = []  # up to here
    for chunk in chunks:
        if isinstance(chunk, str) or not is_tag(chunk):
            words += _words([chunk])
            continue
        closes, name = _kind(chunk)
        depths = [i for i, tag in enumerate(open_) if _kind(tag.opening)[1] == name] if closes is not False else []
        if depths:
            _leave_alone(open_, depths[-1] + 1, top)
            element = open_.pop()
            element.closing, element.end = chunk, len(words)
            element.speaks = any(word.speaks for word in words[element.start :])
            continue
        tag = _Tag(chunk, len(words), len(words))
        (open_[-1].inner if open_ else top).append(tag)
        if name and not closes and name not in VOID and not _EMPTY.search(chunk.text):
            open_.append(tag)
    _leave_alone(open_, 0, top)
    return top


def _leave_alone(open_: list[_Tag], depth: int, top: list[_Tag]) -> None:
    """Tags from a depth on that nothing closes hold nothing: what seemed to be in them stands behind them."""
    while len(open_) > depth:
        tag = open_.pop()
        siblings = open_[-1].inner if open_ else top
        siblings += tag.inner
        tag.inner = []


def _kind(span: Span) -> tuple[bool | None, str | None]:
    """Whether it closes, and its name; comments have none, and of Markdown's marks every second one closes."""
    match = _NAME.match(span.text)
    if match is None:
        return (None, span.text) if span.kind is SpanKind.MARK else (False, None)
    return bool(match.group(1)), match.group(2).lower()


def _elements(chunks: Sequence[Chunk]) -> dict[Chunk, _Tag]:
    found: dict[Chunk, _Tag] = {}
    waiting = _tree(chunks)
    while waiting:
        tag = waiting.pop()
        found[tag.opening] = tag
        waiting += tag.inner
    return found


def _says_something(chunks: Sequence[Chunk]) -> bool:
    return any(not is_tag(chunk) and (isinstance(chunk, Span) or any(map(str.isalnum, chunk))) for chunk in chunks)


# Words, and which of the other side's they come from


def _words(chunks: Sequence[Chunk]) -> list[_Word]:
    words: list[_Word] = []
    position = count = 0
    for chunk in chunks:
        text = chunk.text if isinstance(chunk, Span) else chunk
        ranges = [(0, len(text))] if isinstance(chunk, Span) else [match.span() for match in _WORD.finditer(text)]
        for start, end in ranges:
            length = visible(text[start:end])
            speaks = isinstance(chunk, Span) or any(map(str.isalnum, text[start:end]))
            words.append(_Word(position + start, position + end, count, count + length, speaks))
            count += length
        position += len(text)
    return words


def visible(text: str) -> int:
    """How many characters are no blanks."""
    return sum(not character.isspace() for character in text)


def _words_of_tokens(words: Sequence[_Word], reached: Sequence[int]) -> Floats:
    """[tokens, words]: how much of each token belongs to which word."""
    ends = np.array(reached)[:, None]
    starts = np.concatenate([[[0]], ends[:-1]])
    first, last = (np.array([getattr(word, name) for word in words])[None] for name in ("first", "last"))
    shared = np.clip(np.minimum(ends, last) - np.maximum(starts, first), 0, None)  # characters
    return np.asarray(shared / np.maximum(1, ends - starts), np.float32)


def _by_words(attention: Floats, target: Floats, source: Floats) -> Floats:
    """[words of the translation, words of the source], shares of the attention that goes to words."""
    weights = target.T @ attention @ source
    return np.asarray(weights / np.maximum(weights.sum(1, keepdims=True), 1e-9), np.float32)


# Where tags go


class _Placed(NamedTuple):
    """A tag in the translation: around the words from `start` to `end`, or by itself before the word `start`."""

    tag: _Tag
    start: int
    end: int
    inner: Sequence[_Placed]


class _Placing:
    def __init__(self, weights: Floats, speaks: Sequence[bool]) -> None:
        self._weights = weights  # [words of the translation, words of the source]
        self._speaks = speaks  # [words of the translation]

    def place(self, tags: Sequence[_Tag], start: int, end: int) -> list[_Placed] | None:
        """Tags of one level, each within the range and beside the others; None where one would have no word."""
        free = np.ones(end - start, bool)
        placed: list[_Placed] = []
        for tag in [tag for tag in tags if tag.has_words]:
            run = self._run(tag, start, free)
            inner = self.place(tag.inner, *run) if run else None
            if run is None or inner is None:
                return None
            free[run[0] - start : run[1] - start] = False
            placed.append(_Placed(tag, *run, inner))
        for tag in [tag for tag in tags if not tag.has_words]:
            at = self._boundary(tag.start, start, end, placed)
            placed.append(_point(tag, at))
        # By itself first: what begins at a word begins behind what stands before it.
        return sorted(placed, key=lambda each: (each.start, each.end))

    def _run(self, tag: _Tag, start: int, free: npt.NDArray[np.bool_]) -> tuple[int, int] | None:
        """The free neighbours that have most of their attention on the element's words, at least the best one."""
        own = self._weights[start : start + len(free), tag.start : tag.end].sum(1) - _EVEN
        best, found = -np.inf, None
        total, first, enough = -1.0, 0, False
        for place in range(len(free)):
            if not free[place]:
                total = -1.0
                continue
            if total < 0:  # whatever comes is better without what was
                total, first, enough = 0.0, place, not tag.speaks
            total += float(own[place])
            enough |= self._speaks[start + place]
            if enough and total > best:
                best, found = total, (start + first, start + place + 1)
        return found

    def _boundary(self, at: int, start: int, end: int, beside: Sequence[_Placed]) -> int:
        """Where most words before it come from before it, and most behind from behind; in none of its siblings."""
        before = self._weights[start:end, :at].sum(1)
        behind = self._weights[start:end, at:].sum(1)
        wrong = np.concatenate([[0.0], behind.cumsum()]) + np.concatenate([before[::-1].cumsum()[::-1], [0.0]])
        for element in beside:
            wrong[element.start + 1 - start : max(0, element.end - start)] = np.inf
        return start + int(wrong.argmin())


def _point(tag: _Tag, at: int) -> _Placed:
    return _Placed(tag, at, at, [_point(inner, at) for inner in tag.inner])


def _written(
    text: str, spans: Sequence[Span], words: Sequence[_Word], placed: Sequence[_Placed], start: int, end: int
) -> Iterator[Chunk]:
    """The text from `start` to `end`, with tags."""
    for tag, first, behind, inner in placed:
        at = min(words[first].start if first < len(words) else end, end)
        yield from chunks_of(text, start, at, spans)
        start = words[behind - 1].end if behind > first else at
        yield tag.opening
        yield from _written(text, spans, words, inner, at, start)
        if tag.closing is not None:
            yield tag.closing
    yield from chunks_of(text, start, end, spans)
