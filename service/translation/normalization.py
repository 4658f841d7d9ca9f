"""Text as models know it: composed, plain spaces, no layout hints. What a reader sees stays; what it stood in is lost.

Only what goes to a model is treated so. Separators, placeholders and the source in an answer stay as they were sent.
"""

import re
import unicodedata
from collections.abc import Iterator

# Layout hints inside the words of the source; another language breaks its words elsewhere.
_DROPPED = dict.fromkeys(map(ord, "\u00ad\u200b\u2060\ufeff"))
# Characters that become a plain space or nothing: no tokenizer needs to know them.
CLEANED = frozenset(filter(str.isspace, map(chr, range(0x3001)))) | frozenset(map(chr, _DROPPED))

# Putting marks in order takes the square of their number, and nobody else runs meanwhile: no letter of any language has
# more than a few, and Unicode's own stream-safe text (UAX #15) has at most 30 together. Marks are neither letters nor
# ASCII, so most texts are known by one look.
_MOST_MARKS = 30
_MAY_BE_MARKS = re.compile(rf"[^\w\s\x00-\u02ff]{{{_MOST_MARKS + 1},}}+")


def composed(text: str) -> str:
    """In NFC; of marks in a row, 30 at a time."""
    if len(text) <= _MOST_MARKS or text.isascii() or not _MAY_BE_MARKS.search(text):
        return unicodedata.normalize("NFC", text)
    return "".join([unicodedata.normalize("NFC", part) for part in _with_few_marks(text)])


def _with_few_marks(text: str) -> Iterator[str]:
    """The text in parts, none of which has more marks in a row than we put in order."""
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
    """Composed to NFC; one plain space where any white space stands, at the edges too; no layout hints."""
    text = composed(text).translate(_DROPPED)
    words = " ".join(text.split())
    if words == text:
        return text
    return (" " if text[:1].isspace() else "") + words + (" " if words and text[-1:].isspace() else "")
