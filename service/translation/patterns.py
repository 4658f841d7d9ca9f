"""Find what a translation must leave as it is: addresses, emoji, template variables, paths, identifiers.

This file only finds spans. `placeholders.py` takes them out and puts them back. Markup (`markup.py`) and messages with
a choice (`icu_messages.py`) are found here too, by calling those files; the terms of a glossary by
`glossary.py`.

Every pattern is linear in the text: repetitions are bounded or possessive, and a lookbehind keeps a search from
starting again in the middle of what it has just refused.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from dragoman.service.translation.icu_messages import message_spans
from dragoman.service.translation.markup import code_span, markup_spans
from dragoman.service.translation.spans import Span, SpanKind
from dragoman.service.translation.writing import UNSPACED


@dataclass(frozen=True)
class Pattern:
    kind: SpanKind
    regex: re.Pattern[str]
    hint: re.Pattern[str] | None  # without a match of this the slower search finds nothing
    accept: Callable[[str], bool] | None = None
    trim: bool = False  # punctuation at the end belongs to the sentence


_TAIL = r"[^\s<>\"“”«»`。，、；：！？（）「」『』【】《》〈〉]"
_LETTER = rf"(?:(?![{UNSPACED}])\w)"
_HOST = rf"(?:{_LETTER}|-){{1,63}}+(?:\.(?:{_LETTER}|-){{1,63}}+){{1,5}}"
_NO_LETTER_BEFORE = re.compile(r"\(\?<!\[\\w([^\]]*)\]\)")
_TLD = r"(?:com|org|net|edu|gov|mil|info|biz|io|dev|app|ai)(?:\.[a-z]{2})?"
_EXTENSION = (
    r"(?:pdf|docx?|odt|rtf|xlsx?|ods|csv|tsv|pptx?|txt|md|json|ya?ml|toml|ini|cfg|conf|xml|html?|css|jsx?|tsx?|py|rb|rs|go|java|"
    r"kt|c|h|cc|cpp|hpp|cs|php|sh|bat|ps1|sql|log|zip|tar|gz|tgz|7z|rar|iso|exe|dll|so|apk|deb|rpm|png|jpe?g|gif|svg|webp|bmp|"
    r"tiff?|mp[34]|wav|ogg|flac|avi|mkv|mov|onnx|bin|epub|ttf|woff2?)"
)
_PICTURE = (
    "[\u00a9\u00ae\u203c\u2049\u2122\u2139\u2190-\u21ff\u2300-\u23ff\u24c2\u2500-\u27bf\u2900-\u297f\u2b00-\u2bff\u3030\u303d"
    "\u3297\u3299\U0001f000-\U0001f1e5\U0001f200-\U0001faff]"
)
_PICTURE_TAIL = "[\ufe0e\ufe0f]?[\U0001f3fb-\U0001f3ff]?[\U000e0020-\U000e007f]*"
_EMOJI = (
    f"(?:[\U0001f1e6-\U0001f1ff]{{1,2}}|[0-9#*]\ufe0f?\u20e3|{_PICTURE}{_PICTURE_TAIL}(?:\u200d(?:{_PICTURE}|[\u2640\u2642])"
    f"{_PICTURE_TAIL})*)"
)


def _trimmed(text: str) -> str:
    """An address without the punctuation of the sentence around it; brackets that it opens itself stay."""
    unopened = {closing: text.count(closing) - text.count(opening) for opening, closing in ("()", "[]", "{}")}
    end = len(text)
    while end and (text[end - 1] in ".,;:!?'\"*_…’" or unopened.get(text[end - 1], 0) > 0):
        end -= 1
        if text[end] in unopened:
            unopened[text[end]] -= 1
    return text[:end]


def _is_thousands(text: str) -> bool:
    """1.234.567 and 1 234 567: another language may write them differently, so the model translates them."""
    return re.fullmatch(r"\d{1,3}(?:([. ])\d{3})(?:\1\d{3})*", text) is not None


def _is_identifier(token: str) -> bool:
    digits = sum(character.isdigit() for character in token)
    if not any(character.isalpha() for character in token):
        return (
            digits >= 5 and re.match(r"\d{1,4}[.,]", token) is None
        )  # 1.234.567,89: other languages write it differently
    if re.search(r"(?:^|[-_])[a-z]{3,}(?:$|[-_])", token):
        return False  # 3-D-printed: a word is part of it
    if any("A" <= character <= "Z" for character in token):
        return len(token) >= 4
    return digits >= 2 and len(token) >= 8 and re.fullmatch(r"[0-9a-f-]+", token) is not None


def _is_telephone(text: str) -> bool:
    return (text[0] in "+(" or sum(character.isdigit() for character in text) >= 9) and not _is_thousands(text)


def _pattern(
    kind: SpanKind,
    regex: str,
    hint: str | None = None,
    flags: int = 0,
    accept: Callable[[str], bool] | None = None,
    trim: bool = False,
) -> Pattern:
    # In scripts without spaces an address begins and ends beside a letter that is no part of it.
    regex = _NO_LETTER_BEFORE.sub(lambda found: rf"(?:(?<![\w{found[1]}])|(?<=[{UNSPACED}]))", regex)
    regex = regex.replace(r"(?!\w)", f"(?!{_LETTER})")
    return Pattern(kind, re.compile(regex, flags), re.compile(hint) if hint else None, accept, trim)


PATTERNS: tuple[Pattern, ...] = (
    _pattern(
        SpanKind.ADDRESS,
        rf"(?<![\w+.-])(?:[a-z][a-z0-9+.-]{{1,15}}://|mailto:|tel:|www\.){_TAIL}++",
        r"://|(?i:mailto:|tel:|www\.)",
        re.IGNORECASE,
        trim=True,
    ),
    _pattern(
        SpanKind.ADDRESS,
        rf"(?<![\w@.-])(?:[a-z0-9-]{{1,63}}\.){{1,5}}{_TLD}(?![\w@-])(?::\d{{2,5}})?(?:/{_TAIL}*+)?",
        r"\.[a-z]",
        trim=True,
    ),
    _pattern(
        SpanKind.ADDRESS,
        rf"(?<![\w.+%-])(?:{_LETTER}|[.+%-]){{1,64}}+@(?:{_LETTER}|-){{1,63}}+(?:\.(?:{_LETTER}|-){{1,63}}+){{1,5}}",
        "@",
    ),
    _pattern(SpanKind.EMOJI, f"{_EMOJI}++"),
    _pattern(SpanKind.EMOJI, r"(?<![\w:]):[a-z][a-z0-9_+-]{1,30}+:(?![\w:])", ":"),
    _pattern(
        SpanKind.VARIABLE,
        r"(?:\{\{[^{}\n]{1,100}+\}\}|\{%[^{}\n]{1,100}?%\}|[$%#]\{[^{}\n]{1,100}+\}"
        r"|\{(?:[^\W\d][\w.\[\]-]{0,60}+|\d{0,3})(?:[!:,][^{}\n]{0,40}+)?\})(?:/[\w.@%+=-]++)*+",
        r"\{",
        trim=True,
    ),
    _pattern(
        SpanKind.VARIABLE,
        r"%\([^\W\d]\w{0,60}+\)[#0 +-]{0,3}\d{0,3}(?:\.\d{1,3})?[sdifeEgGxXorc]"
        r"|(?<!\d)%(?:\d{1,2}\$)?[#0+-]{0,3}\d{0,3}(?:\.\d{1,3})?(?:hh?|ll?|z)?[sdifeEgGxXoucr@](?!\w)|%%",
        "%",
    ),
    _pattern(SpanKind.VARIABLE, rf"(?<![\w$])\$[A-Za-z_]{_LETTER}{{0,60}}+", r"\$"),
    _pattern(
        SpanKind.HANDLE,
        rf"(?<![\w@./])@[A-Za-z_]{_LETTER}{{0,49}}+(?:[.-]{_LETTER}{{1,30}}+){{0,3}}(?:@{_HOST})?",
        "@",
    ),
    _pattern(SpanKind.HANDLE, r"(?<![\w&#/])#\w++", "#"),
    _pattern(
        SpanKind.PATH,
        r"(?<!\w)[A-Za-z]:\\[^\s<>\"|?*]*+|(?<![\\\w])\\\\[\w.-]{1,60}+\\[^\s<>\"|?*]++",
        r"\\",
        trim=True,
    ),
    _pattern(
        SpanKind.PATH,
        r"(?<![\w/.~:<])(?:(?:~|\.{1,2})/[\w.@%+=-]++(?:/[\w.@%+=-]++)*+|(?:/[\w.@%+=-]++){2,})/?",
        "/",
        trim=True,
    ),
    _pattern(
        SpanKind.PATH,
        rf"(?<![\w/.-])(?:[\w.-]{{1,80}}+/){{0,10}}+[\w-]{{1,80}}+(?:\.[\w-]{{1,20}}){{0,3}}\.{_EXTENSION}(?!\w)",
        r"\.[a-z0-9]",
    ),
    _pattern(SpanKind.CODE, r"```.+?```|`[^`\n]{1,300}+`", "`", re.DOTALL),
    _pattern(
        SpanKind.IDENTIFIER,
        r"(?<![\w.,:-])[A-Za-z_-]{0,40}\d[A-Za-z0-9_-]*+(?!\w)(?:[.,]\d+(?!\w))*",
        accept=_is_identifier,
    ),
    _pattern(
        SpanKind.IDENTIFIER,
        r"(?<![\w+.,])(?:\+\d{1,3}[ .-]?)?(?:\(\d{1,4}\)[ .-]?)?\d{2,5}(?:[ .-]\d{2,5}){1,4}(?![\w.,]?\d)",
        accept=_is_telephone,
    ),
    _pattern(
        SpanKind.IDENTIFIER,
        r"(?<![\w.,])v?\d{1,4}(?:\.\d{1,5}){2,5}(?!\w)",
        r"\.\d",
        accept=lambda text: not _is_thousands(text),
    ),
    _pattern(
        SpanKind.CONTROL,
        "[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufff9-\ufffc\ue000-\uf8ff\U000f0000-\U0010ffff]+",
    ),
)

# Most sentences have no other characters, and no pattern matches in them: one search instead of twenty.
_PROSE = re.compile(r"(?:[^\W\d_\u2139]|[ \n\t,;!?'’\"“”«»()–—…。，、；：！？（）「」『』؟،؛।-]|\.(?!\w))*+")


def pattern_spans(text: str) -> Iterator[Span]:
    """Every match of every pattern; matches of different patterns may overlap."""
    if _PROSE.fullmatch(text):
        return
    for pattern in PATTERNS:
        if pattern.hint is None or pattern.hint.search(text):
            yield from _matches(pattern, text)
    yield from markup_spans(text)
    yield from message_spans(text)


def _matches(pattern: Pattern, text: str) -> Iterator[Span]:
    for match in pattern.regex.finditer(text):
        found = _trimmed(match.group()) if pattern.trim else match.group()
        if found and (pattern.accept is None or pattern.accept(found)):
            is_code = pattern.kind is SpanKind.CODE
            span = Span(match.start(), match.start() + len(found), found, pattern.kind)
            yield code_span(match.start(), found, pattern.kind) if is_code else span
