"""A request's own terms: where they stand in a text, and how their translations are written there.

A term in lower case matches in any case, and its translation takes the case that the text has (gato, Gato, GATO). A
term with a capital matches exactly as it is written. A term that is translated by itself is kept as the text has it.

Those whose first token is in the text become a tree of tokens that is read once, so that the time is that of the text
and of the terms, however many begin alike and however long they are.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import zip_longest

from dragoman.service.translation.spans import Span, SpanKind

_TOKEN = re.compile(r"\w+|[^\w\s]")
_PAGE_CHARACTERS = 1000  # no term that a person would write is longer, but an element that is left alone may be

Begins = tuple[int, int]  # rank of a term, and its number of tokens


@dataclass(frozen=True)
class _Term:
    term: str
    translation: str

    @property
    def in_any_case(self) -> bool:
        return self.term == self.term.lower()

    def written_as(self, found: str) -> str:
        """The translation in the case of the text that was found; one with capitals within is written as it is."""
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
    """A text as tokens. A step is a token with a space after it, if there is any: `C ++` is not `C++`."""

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
    """Terms read backwards, as Aho and Corasick read them: each token of a text is one step, whatever the terms are.

    A node is a number, 0 the root, and stands for the last tokens of a term.
    """

    def __init__(self, terms: Iterable[tuple[int, Sequence[str]]]) -> None:
        """Rank and steps of each term; of those that begin at one place the least rank goes first."""
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
        self._shorter = [0] * len(self._steps)  # where the same tokens lead to without the last, or the last few
        self._tie()

    def begins(self, steps: Sequence[str]) -> Iterator[Begins | None]:
        """Which term begins, from the last place to the first."""
        node = 0
        for step in reversed(steps):
            node = self._next(node, step)
            yield self._begins[node]

    def _next(self, node: int, step: str) -> int:
        while node:
            if step in self._steps[node]:
                return self._steps[node][step]
            node = self._shorter[node]
        return self._steps[0].get(step.rstrip(), 0)  # what is after a term is no part of it

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
        """Matches from left to right; where several terms begin, the longest that matches.

        Of pages that overlap only the first is told: a page that repeats itself begins anew at each of its words.
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
        """Of a thousand terms a text has few."""
        words = {token.group().casefold() for token in reading.tokens}
        return sorted(rank for word in words & self._by_first_token.keys() for rank in self._by_first_token[word])


def _found(ranks: Sequence[int], terms: Sequence[_Term], reading: _Reading) -> Iterator[tuple[int, Begins]]:
    """Places where terms begin, with the rank and the number of tokens of the one that goes first."""
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
    """One for all letters that a regular expression takes for the same one when it ignores case: s, S and ſ."""
    if letter in "ıİ":
        return letter  # but for the Turkish ones
    small = letter.lower()[0]
    large = small.upper()
    if large[0] == small:
        return letter
    return large if len(large) == 1 else f"({large})"  # ß, which is not SS; no word holds a bracket


NO_GLOSSARY = Glossary({})
