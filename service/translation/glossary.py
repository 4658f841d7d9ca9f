"""The terms of a request's glossary: where they are in a text, and how their translations are written there.

A term in lower case matches in any case, and its translation takes the case of the text (gato, Gato, GATO). A term with
a capital matches only as it is written. A term whose translation is the term itself is copied from the text.

The terms whose first token is in the text become one tree of tokens. The text is read once, so the time is linear in
the text and the terms, however many terms begin with the same tokens.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import zip_longest

from dragoman.service.translation.spans import Span, SpanKind
from dragoman.service.translation.writing import SPACED_LETTER, UNSPACED_LETTER

_TOKEN = re.compile(rf"{UNSPACED_LETTER}|(?:{SPACED_LETTER})++|[^\w\s]")  # where no space is, each letter is a word
_PAGE_CHARACTERS = 1000  # no person writes a longer term, but an ignored element may be longer

Begins = tuple[int, int]  # rank of a term, and its number of tokens


@dataclass(frozen=True)
class _Term:
    term: str
    translation: str

    @property
    def in_any_case(self) -> bool:
        return self.term == self.term.lower()

    def written_as(self, found: str) -> str:
        """The translation in the case of the text that was found; a translation with capitals inside stays as it is."""
        if self.term == self.translation:
            return found
        if self.translation[1:] != self.translation[1:].lower():
            return self.translation
        if found.isupper() and not self.term.isupper() and sum(map(str.isalpha, found)) > 1:
            return self.translation.upper()
        if found[:1].isupper() and self.term[:1].islower():
            return self.translation[:1].upper() + self.translation[1:]
        return self.translation


class _Reading:
    """A text as steps. A step is a token, with a space if one follows: `C ++` is not `C++`."""

    def __init__(self, text: str) -> None:
        self.tokens = list(_TOKEN.finditer(text))

    @cached_property
    def written(self) -> list[str]:
        pairs = zip(self.tokens, self.tokens[1:], strict=False)
        steps = [token.group() + " " * (token.end() < following.start()) for token, following in pairs]
        return steps + [token.group() for token in self.tokens[-1:]]

    @cached_property
    def in_any_case(self) -> list[str]:
        return [_without_case(step) for step in self.written]


class _Tree:
    """An Aho-Corasick automaton over reversed terms: each token of a text is one step, whatever the terms are.

    A node is a number, 0 the root, and stands for the last tokens of a term.
    """

    def __init__(self, terms: Iterable[tuple[int, Sequence[str]]]) -> None:
        """The rank and the steps of each term. Of terms that begin at the same place, the lowest rank is taken."""
        self._steps: list[dict[str, int]] = [{}]
        self._begins: list[Begins | None] = [None]
        for rank, steps in terms:
            node = 0
            for step in reversed(steps):
                node = self._steps[node].setdefault(step, len(self._steps))
                if node == len(self._steps):
                    self._steps.append({})
                    self._begins.append(None)
            self._begins[node] = self._begins[node] or (rank, len(steps))
        self._shorter = [0] * len(self._steps)  # the node of the same tokens without the last ones, as few as possible
        self._tie()

    def begins(self, steps: Sequence[str]) -> Iterator[Begins | None]:
        """Which term begins at each place, from the last place to the first."""
        node = 0
        for step in reversed(steps):
            node = self._next(node, step)
            yield self._begins[node]

    def _next(self, node: int, step: str) -> int:
        while node:
            if step in self._steps[node]:
                return self._steps[node][step]
            node = self._shorter[node]
        return self._steps[0].get(step.rstrip(), 0)  # a space after the term is no part of it

    def _tie(self) -> None:
        level = list(self._steps[0].values())
        while level:
            for node in level:
                shorter = self._shorter[node]
                self._begins[node] = min(filter(None, (self._begins[node], self._begins[shorter])), default=None)
                for step, longer in self._steps[node].items():
                    self._shorter[longer] = self._next(shorter, step)
            level = [longer for node in level for longer in self._steps[node].values()]


class Glossary:
    def __init__(self, terms: Mapping[str, str]) -> None:
        """Terms must not be blank (the translator refuses such a request)."""
        self._terms: list[_Term] = []  # the longest first
        self._by_first_token: dict[str, list[int]] = {}
        for term, translation in sorted(terms.items(), key=lambda item: -len(item[0])):
            first = _TOKEN.search(term)
            assert first is not None, "a blank term"
            self._by_first_token.setdefault(first.group().casefold(), []).append(len(self._terms))
            self._terms.append(_Term(term.strip(), translation))

    def spans(self, text: str) -> Iterator[Span]:
        """Matches from left to right; if several terms begin at one place, the longest.

        Of very long matches that overlap only the first is given: text that repeats itself would match at every word.
        """
        if not self._terms:
            return
        reading, end_of_page = _Reading(text), 0
        for place, (rank, num_tokens) in _found(self._that_may_be_in(reading), self._terms, reading):
            start, end = reading.tokens[place].start(), reading.tokens[place + num_tokens - 1].end()
            if end - start > _PAGE_CHARACTERS:
                if start < end_of_page:
                    continue
                end_of_page = end
            yield Span(start, end, self._terms[rank].written_as(text[start:end]), SpanKind.GLOSSARY)

    def _that_may_be_in(self, reading: _Reading) -> list[int]:
        """The terms whose first token is in the text: few, even of a thousand."""
        words = {token.group().casefold() for token in reading.tokens}
        return sorted(rank for word in words & self._by_first_token.keys() for rank in self._by_first_token[word])


def _found(ranks: Sequence[int], terms: Sequence[_Term], reading: _Reading) -> Iterator[tuple[int, Begins]]:
    """Places where terms begin, with the rank and the number of tokens of the term that is taken there."""
    in_any_case = [(rank, _Reading(terms[rank].term).in_any_case) for rank in ranks if terms[rank].in_any_case]
    written = [(rank, _Reading(terms[rank].term).written) for rank in ranks if not terms[rank].in_any_case]
    begins: list[list[Begins | None]] = [[], []]
    if in_any_case:
        begins[0] = list(_Tree(in_any_case).begins(reading.in_any_case))
    if written:
        begins[1] = list(_Tree(written).begins(reading.written))
    for place, both in enumerate(zip_longest(*map(reversed, begins))):
        found = min(filter(None, both), default=None)
        if found is not None:
            yield place, found


def _without_case(step: str) -> str:
    return step.upper() if step.isascii() else "".join(map(_letter_without_case, step))


@lru_cache(maxsize=4096)
def _letter_without_case(letter: str) -> str:
    """The same for all letters that a regular expression treats as equal when it ignores case: s, S and ſ."""
    if letter in "ıİ":
        return letter  # the Turkish letters differ
    small = letter.lower()[0]
    large = small.upper()
    if large[0] == small:
        return letter
    return large if len(large) == 1 else f"({large})"  # ß is not SS; no word has a bracket


NO_GLOSSARY = Glossary({})
