"""Amounts and dates, which a model may get wrong by a digit: found, and written as the target language writes them.

Where one language has a point another has a comma: 1.250,00 is 1,250.00. What may be no number stays as it is: 3.11 in
English may be a version, while 3,11 in Portuguese is a number only. Dates stay as they are, for the order of day and
month is not ours to guess. Numbers without marks are left to the model; `lost_numbers` tells whether they came through.
"""

import re
from collections import Counter
from collections.abc import Iterator

from service.translation.patterns import Span, SpanKind

_COMMA = frozenset(("pt", "es", "fr", "it", "de", "nl", "ro", "pl", "cs", "ru", "uk", "tr", "sv", "da", "nb", "fi"))
_POINT = frozenset(("en", "zh", "ja", "ko", "th", "he"))
_HINT = re.compile(r"\d[.,/-]\d")
_BEFORE, _AFTER = r"(?<![\w.,/:-])", r"(?![\w/:-]|[.,]\d)"
_MONEY, _UNIT = r"(?:(?:R|US|A|C)?\$\s?|[€£¥]\s?)", r"(?:\s?[€%‰])"
_WITH_COMMA = re.compile(rf"{_BEFORE}{_MONEY}?(?:\d{{1,3}}(?:\.\d{{3}})+(?:,\d+)?|\d+,\d+){_UNIT}?{_AFTER}")
_WITH_POINT = re.compile(
    rf"{_BEFORE}(?:{_MONEY}?\d{{1,3}}(?:,\d{{3}})+(?:\.\d+)?{_UNIT}?|{_MONEY}\d+\.\d+{_UNIT}?|\d+\.\d+{_UNIT}){_AFTER}"
)
_LITERAL = re.compile(  # dates, and what may be a version
    rf"{_BEFORE}(?:\d{{1,2}}([/.-])\d{{1,2}}\1\d{{2,4}}|\d{{4}}([/-])\d{{1,2}}\2\d{{1,2}}|\d+\.\d+){_AFTER}"
)
_OTHER_MARKS = str.maketrans(".,", ",.")
_DIGITS = re.compile(r"\d{3,}")  # fewer are often written in words


def number_spans(text: str, source: str, target: str) -> Iterator[Span]:
    """Dates, and numbers with marks in them, each with what it is in the target language."""
    if not _HINT.search(text):
        return
    of_source, of_target = _marks(source), _marks(target)
    if of_source is not None and of_target is not None:
        for match in of_source.finditer(text):
            written = match.group() if of_source is of_target else match.group().translate(_OTHER_MARKS)
            yield Span(match.start(), match.end(), written, SpanKind.NUMBER)
    for match in _LITERAL.finditer(text):  # last: of equal extent the first given wins
        yield Span(match.start(), match.end(), match.group(), SpanKind.NUMBER)


def lost_numbers(source: str, translation: str) -> bool:
    """Whether the source has numbers, of three digits or more, that the translation lacks."""
    wanted = _DIGITS.findall(source)  # of most sentences none
    return bool(wanted) and not Counter(wanted) <= Counter(_DIGITS.findall(translation))


def _marks(language: str) -> re.Pattern[str] | None:
    code = language.partition("-")[0].lower()
    return _WITH_COMMA if code in _COMMA else _WITH_POINT if code in _POINT else None
