"""Facts about how languages are written: spaces, direction, decimal marks, and which characters are of which kind.

Everything that text handling decides by language is decided here, by the code of the language. What can be decided by
the characters themselves is: a Portuguese text may quote Chinese.
"""

import re
import unicodedata

from dragoman.service.language_codes import base_language

# Scripts without spaces between words, as the inside of a character class: Thai, Lao, Tibetan, Burmese, Khmer, Han and
# kana with their marks, full-width forms.
_WIDE_RANGES = "\u2e80-\u312f\u31a0-\u9fff\uf900-\ufaff\uff01-\uff9f\U00020000-\U0003ffff"
UNSPACED = "\u0e00-\u109f\u1780-\u17ff" + _WIDE_RANGES
# Of these, the scripts that write no space between sentences either.
_WIDE = re.compile(f"[{_WIDE_RANGES}]")
_UNSPACED = re.compile(f"[{UNSPACED}]")
_HANGUL = re.compile("[\u1100-\u11ff\u3130-\u318f\uac00-\ud7ff]")
_TIGHT = frozenset(("zh", "ja", "yue", "wuu"))
# Their i has a dot in capitals, too, which Python's `upper` and `lower` do not know.
_OTHER_CASE = frozenset(("tr", "az", "crh", "tt"))

_COMMA = frozenset((
    "bg", "ca", "cs", "da", "de", "el", "es", "et", "eu", "fi", "fr", "gl", "hr", "hu", "id", "is", "it", "lt", "lv",
    "nb", "nl", "nn", "no", "pl", "pt", "ro", "ru", "sk", "sl", "sr", "sv", "tr", "uk", "vi",
))  # fmt: skip
_POINT = frozenset(("en", "he", "ja", "ko", "th", "yue", "zh"))


def _marks() -> str:
    """Combining marks of all scripts in use, as the inside of a character class. To `re` they are no letters."""
    codes = [code for code in range(0x300, 0x3100) if unicodedata.category(chr(code)).startswith("M")]
    starts = [code for code in codes if code - 1 not in set(codes)]
    ends = [code for code in codes if code + 1 not in set(codes)]
    return "".join([f"{chr(start)}-{chr(end)}" for start, end in zip(starts, ends, strict=True)])


MARKS = _marks()
# One letter of a script with spaces, and one of a script without: there, every character may be a word.
SPACED_LETTER = rf"(?![{UNSPACED}])[\w{MARKS}]"
UNSPACED_LETTER = rf"(?=\w)[{UNSPACED}][{MARKS}]*+"


def is_unspaced(character: str) -> bool:
    """Whether words of this character's script have no spaces between them."""
    return character > "\u0dff" and _UNSPACED.match(character) is not None


def is_wide(character: str) -> bool:
    """Whether the character belongs to a script that has no spaces even between sentences: Han, kana, `。`."""
    return character > "\u2dff" and _WIDE.match(character) is not None


def is_hangul(character: str) -> bool:
    return character > "\u10ff" and _HANGUL.match(character) is not None


def spaces_sentences(language: str) -> bool:
    """Whether a space stands between two sentences. Thai has it, although it has none between words."""
    return base_language(language) not in _TIGHT


def knows_case(language: str) -> bool:
    """Whether capitals and small letters are each other's as Python has them."""
    return base_language(language) not in _OTHER_CASE


def decimal_mark(language: str) -> str | None:
    """A comma or a point; None where it is not known, or differs by country."""
    code = base_language(language)
    return "," if code in _COMMA else "." if code in _POINT else None


def with_plain_digits(text: str) -> str:
    """The digits of every script as 0 to 9, and full-width marks of numbers as plain ones."""
    if text.isascii():
        return text
    return "".join([_plain(character) for character in text])


def _plain(character: str) -> str:
    if character.isdecimal():
        return str(unicodedata.decimal(character))
    return {"．": ".", "，": ",", "٫": ".", "٬": ","}.get(character, character)
