"""Text as models know it: composed characters, plain spaces, no layout hints.

Only what goes to a model is changed. Separators, placeholders and the source in an answer stay as they were sent.
"""

import re
import unicodedata
from collections.abc import Iterator

# Hints where a word may be broken: the words of another language break elsewhere.
_DROPPED = dict.fromkeys(map(ord, "\u00ad\u200b\u2060\ufeff"))
# Characters that become a plain space or nothing, so no tokenizer needs to know them.
CLEANED = frozenset(filter(str.isspace, map(chr, range(0x3001)))) | frozenset(map(chr, _DROPPED))

# Sorting combining marks takes quadratic time and holds the interpreter's lock. No letter of any language has more than
# a few, and Unicode's stream-safe format (UAX #15) allows 30 in a row. Marks are neither letters nor ASCII, so most
# texts need only one search.
_MOST_MARKS = 30
_MAY_BE_MARKS = re.compile(rf"[^\w\s\x00-\u02ff]{{{_MOST_MARKS + 1},}}+")


def composed(text: str) -> str:
    """The text in NFC; a longer row of marks is composed 30 marks at a time."""
    if len(text) <= _MOST_MARKS or text.isascii() or not _MAY_BE_MARKS.search(text):
        return unicodedata.normalize("NFC", text)
    return "".join([unicodedata.normalize("NFC", part) for part in _with_few_marks(text)])


def _with_few_marks(text: str) -> Iterator[str]:
    """The text in parts, none with more marks in a row than the limit."""
    position = 0
    for run in _MAY_BE_MARKS.finditer(text):
        marks = 0
        for place in range(run.start(), run.end()):
            marks = marks + 1 if unicodedata.category(text[place]).startswith("M") else 0
            if marks > _MOST_MARKS:
                yield text[position:place]
                position, marks = place, 1
    yield text[position:]


def clean(text: str) -> str:
    """In NFC, with one plain space for any white space, also at the edges, and without layout hints."""
    text = composed(text).translate(_DROPPED)
    words = " ".join(text.split())
    if words == text:
        return text
    return (" " if text[:1].isspace() else "") + words + (" " if words and text[-1:].isspace() else "")
