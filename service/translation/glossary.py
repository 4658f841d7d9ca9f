"""A request's own terms: where they stand in a text, and how their translations are written there.

A term in lower case matches in any case, and its translation takes the case that the text has (gato, Gato, GATO). A
term with a capital matches exactly as it is written. A term that is translated by itself is kept as the text has it.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from service.translation.patterns import Span, SpanKind

_TOKEN = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True)
class _Term:
    term: str
    translation: str

    @cached_property
    def regex(self) -> re.Pattern[str]:
        """Made when the term's first word was seen: of a thousand terms a text has few."""
        words = r"\s+".join(map(re.escape, self.term.split()))
        before = r"(?<!\w)" if re.match(r"\w", self.term) else ""
        after = r"(?!\w)" if re.search(r"\w\Z", self.term) else ""
        return re.compile(before + words + after, re.IGNORECASE if self.term == self.term.lower() else 0)

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


class Glossary:
    def __init__(self, terms: Mapping[str, str]) -> None:
        """Terms must not be blank (the translator refuses such a request)."""
        self._by_first_token: dict[str, list[_Term]] = {}
        for term, translation in sorted(terms.items(), key=lambda item: -len(item[0])):
            first = _TOKEN.search(term)
            assert first is not None, "a blank term"
            self._by_first_token.setdefault(first.group().casefold(), []).append(_Term(term.strip(), translation))

    def spans(self, text: str) -> Iterator[Span]:
        """Matches from left to right; where several terms begin, the longest that matches."""
        if not self._by_first_token:
            return
        for token in _TOKEN.finditer(text):
            for term in self._by_first_token.get(token.group().casefold(), ()):
                if match := term.regex.match(text, token.start()):
                    yield Span(match.start(), match.end(), term.written_as(match.group()), SpanKind.GLOSSARY)
                    break


NO_GLOSSARY = Glossary({})
