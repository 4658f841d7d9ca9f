"""Tags in a sentence: whether a translation kept them in order, and where they go when it was made without them.

A model loses tags more often than it loses sense, and it translates the sentence well without them. The attention of
that translation tells which of its words come from which words of the source, so a tag goes where its words went. This
file is pure: `decode.py` decodes and asks for the attention.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dragoman.service.translation.markup import pair_tags, read_tag
from dragoman.service.translation.placeholders import chunks_of, laid_out
from dragoman.service.translation.spans import Chunk, Span
from dragoman.service.translation.writing import SPACED_LETTER, UNSPACED_LETTER

Floats = npt.NDArray[np.float32]

_LETTERS = rf"(?:{SPACED_LETTER})+"
_WORD = re.compile(rf"{UNSPACED_LETTER}|{_LETTERS}(?:['’-]{_LETTERS})*|[^\w\s]")
_EVEN = 0.5  # a word belongs to an element when more than this share of its attention is on the element's words


@dataclass
class _Tag:
    """A tag that stands alone, or an element with what is inside it. Places are counted in words of the source."""

    opening: Span
    start: int
    end: int
    closing: Span | None = None
    speaks: bool = False  # it holds more than punctuation
    inner: list[_Tag] = field(default_factory=list)

    @property
    def has_words(self) -> bool:
        return self.closing is not None and self.end > self.start


class Reach(NamedTuple):
    """For each token of a sentence, how many characters the sentence has up to its end, blanks not counted."""

    source: Sequence[int]
    target: Sequence[int]


class _Word(NamedTuple):
    """A word, a mark or a span of a text."""

    start: int  # in the text
    end: int
    first: int  # among its characters that are no blanks
    last: int  # the one after
    speaks: bool  # it is more than punctuation


def is_tag(chunk: Chunk) -> bool:
    return isinstance(chunk, Span) and chunk.kind.is_tag


def without_tags(chunks: Sequence[Chunk]) -> tuple[Chunk, ...]:
    """The sentence as if it had no tags; texts that now meet become one."""
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
    """Whether the elements of the translation are nested and none was emptied. All tags must be there."""
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
    """A translation that was made without tags, with the tags of the source; None if a tag would have no word.

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
    """Elements inside elements; a tag without a partner stands alone."""
    tags = [chunk for chunk in chunks if isinstance(chunk, Span) and chunk.kind.is_tag]
    pairs = pair_tags([read_tag(tag.text) for tag in tags])
    closing = set(pairs.values())
    top: list[_Tag] = []
    open_: list[_Tag] = []
    words: list[_Word] = []  # up to here
    place = 0  # among the tags
    for chunk in chunks:
        if not isinstance(chunk, Span) or not chunk.kind.is_tag:
            words += _words([chunk])
            continue
        if place in closing:
            element = open_.pop()
            element.closing, element.end = chunk, len(words)
            element.speaks = any(word.speaks for word in words[element.start :])
        else:
            tag = _Tag(chunk, len(words), len(words))
            (open_[-1].inner if open_ else top).append(tag)
            if place in pairs:
                open_.append(tag)
        place += 1
    return top


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


# Words, and from which words of the other side they come


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
    """How many characters are not blank."""
    return sum(not character.isspace() for character in text)


def _words_of_tokens(words: Sequence[_Word], reached: Sequence[int]) -> Floats:
    """[tokens, words]: how much of each token belongs to which word."""
    ends = np.array(reached)[:, None]
    starts = np.concatenate([[[0]], ends[:-1]])
    first, last = (np.array([getattr(word, name) for word in words])[None] for name in ("first", "last"))
    shared = np.clip(np.minimum(ends, last) - np.maximum(starts, first), 0, None)  # characters
    return np.asarray(shared / np.maximum(1, ends - starts), np.float32)


def _by_words(attention: Floats, target: Floats, source: Floats) -> Floats:
    """[words of the translation, words of the source]: shares of the attention that goes to words."""
    weights = target.T @ attention @ source
    return np.asarray(weights / np.maximum(weights.sum(1, keepdims=True), 1e-9), np.float32)


# Where tags go


class _Placed(NamedTuple):
    """A tag in the translation: around the words from `start` to `end`, or alone before the word `start`."""

    tag: _Tag
    start: int
    end: int
    inner: Sequence[_Placed]


class _Placing:
    def __init__(self, weights: Floats, speaks: Sequence[bool]) -> None:
        self._weights = weights  # [words of the translation, words of the source]
        self._speaks = speaks  # [words of the translation]

    def place(self, tags: Sequence[_Tag], start: int, end: int) -> list[_Placed] | None:
        """Tags of one level, each within the range and beside the others; None if one would have no word."""
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
        # A tag that stands alone before a word comes before an element that begins with that word.
        return sorted(placed, key=lambda each: (each.start, each.end))

    def _run(self, tag: _Tag, start: int, free: npt.NDArray[np.bool_]) -> tuple[int, int] | None:
        """The run of free words that has most of its attention on the element's words; at least the best word."""
        own = self._weights[start : start + len(free), tag.start : tag.end].sum(1) - _EVEN
        best, found = -np.inf, None
        total, first, enough = -1.0, 0, False
        for place in range(len(free)):
            if not free[place]:
                total = -1.0
                continue
            if total < 0:  # a run that begins here is better than one that goes on
                total, first, enough = 0.0, place, not tag.speaks
            total += float(own[place])
            enough |= self._speaks[start + place]
            if enough and total > best:
                best, found = total, (start + first, start + place + 1)
        return found

    def _boundary(self, at: int, start: int, end: int, beside: Sequence[_Placed]) -> int:
        """The place where most words before it come from before the tag, and most words after it from after the tag.

        It lies inside none of the elements beside it.
        """
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
