"""Find amounts and dates, which a model may get wrong by a digit, and write them as the target language does.

One language has a point where another has a comma: 1.250,00 is 1,250.00. What may be something else stays as it is:
3.11 in English may be a version, but 3,11 in Portuguese is a number. Dates stay as they are, because the order of day
and month cannot be guessed. Numbers without marks are left to the model; `changed_numbers` checks them afterwards.
"""

import html
import re
from collections import Counter
from collections.abc import Iterator

from dragoman.service.translation.spans import Span, SpanKind
from dragoman.service.translation.writing import UNSPACED, decimal_mark, with_plain_digits

_HINT = re.compile(r"\d[.,/-]\d")
_BEFORE = rf"(?:(?<![\w.,/:-])|(?<=(?!\d)[{UNSPACED}]))"
_AFTER = rf"(?!(?!(?!\d)[{UNSPACED}])[\w/:-]|[.,]\d)"
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
# Chinese, Japanese and Korean count in ten thousands: 12万 is 120,000, and no comparison of digits can tell.
_MYRIADS = re.compile(r"\d\s?[千万亿萬億兆천만억조]")


def number_spans(text: str, source: str, target: str) -> Iterator[Span]:
    """Dates, and numbers with marks in them, each as the target language writes it."""
    if not _HINT.search(text):
        return
    of_source, of_target = _marks(source), _marks(target)
    if of_source is not None and of_target is not None:
        for match in of_source.finditer(text):
            written = match.group() if of_source is of_target else match.group().translate(_OTHER_MARKS)
            yield Span(match.start(), match.end(), written, SpanKind.NUMBER)
    for match in _LITERAL.finditer(text):  # last: of spans with the same range the first is taken
        yield Span(match.start(), match.end(), match.group(), SpanKind.NUMBER)


def changed_numbers(source: str, translation: str) -> bool:
    """Whether a number of three digits or more was lost, or is new. A new round number may have been a word."""
    if _DIGITS.search(source) is None and _DIGITS.search(translation) is None:  # most sentences
        return False
    # The number in an entity does not count.
    source, translation = with_plain_digits(html.unescape(source)), with_plain_digits(html.unescape(translation))
    if _MYRIADS.search(source) or _MYRIADS.search(translation):
        return False
    wanted, found = Counter(_DIGITS.findall(source)), Counter(_DIGITS.findall(translation))
    new = (found - wanted).keys()
    return not wanted <= found or any(number in wanted or _is_odd(number, source) for number in new)


def _is_odd(number: str, source: str) -> bool:
    """Whether no word of the source can stand for this number: it is not round, and the source has digits."""
    return not number.endswith("00") and any(map(str.isdigit, source))


def _marks(language: str) -> re.Pattern[str] | None:
    mark = decimal_mark(language)
    return None if mark is None else _WITH_COMMA if mark == "," else _WITH_POINT
