"""Find markup, which a translation leaves as it is: tags, comments, entities, and elements whose content is not prose.

Markup is found in every text, whatever a caller says of it; `a < b` is none. An element that says so itself
(`translate="no"`, `class="notranslate"`) is left as it is from its first tag to the one that closes it.

All of it is linear in the text. Quoted values may hold anything but their own quotation mark, of any length: a search
that begins at one tag ends where a later one has its quotation marks, and a tag has a bounded number of them. What
runs up to a closing mark of its own (comments, scripts) looks for it with `find`, and never again once it was missing.
"""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from dragoman.service.translation.spans import Span, SpanKind, outermost

# Attributes without a value. Others are known by a hyphen or a mark, because words in angle brackets are not markup.
_BARE = (
    r"(?:allowfullscreen|async|autofocus|autoplay|checked|compact|contenteditable|controls|crossorigin|declare|default|defer|"
    r"disabled|download|draggable|formnovalidate|hidden|inert|ismap|itemscope|loop|multiple|muted|nomodule|noresize|noshade|"
    r"novalidate|nowrap|open|playsinline|popover|readonly|required|reversed|scoped|seamless|selected|translate)(?![\w-])"
    r"|[a-z][a-z0-9]{0,30}+(?:-[\w.:]{1,60}+){1,8}+|[@:*#][\w.:-]{1,60}+"
)
_VALUED = r"[^\s\"'<>/=]{1,100}+\s*+=\s*+(?:\"[^\"]*+\"|'[^']*+'|[^\s\"'<>=`]{1,2000}+)"
_ATTRIBUTES = rf"(?:(?:\s++|(?<=[\"']))(?:{_VALUED}|{_BARE})){{0,50}}+\s*+"
_TAG = re.compile(
    rf"<(?P<close>/?)(?P<name>[A-Za-z][\w:.-]{{0,40}}+)(?P<attributes>{_ATTRIBUTES})(?P<empty>/?)>"
    r"|</?\d{1,3}\s?/?>|<!DOCTYPE[^<>]{0,200}>",
    re.IGNORECASE,
)
_NAMED_VALUE = re.compile(r"([^\s\"'<>/=]{1,100}+)\s*+=\s*+(\"[^\"]*+\"|'[^']*+'|[^\s\"'<>=`]++)")
# No element: there is nothing between them and a closing tag.
VOID = frozenset(("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"))
_BLOCK = re.compile(
    r"</?(?:br|hr|p|div|h[1-6]|ul|ol|li|dl|dt|dd|table|thead|tbody|tfoot|tr|t[dh]|caption|section|article|header|footer|nav|aside|"
    r"main|figure|figcaption|blockquote|pre|form|fieldset|option|select|title|head|body|html|script|style)\b|<!DOCTYPE|<\?|```",
    re.IGNORECASE,
)
_RAW_OPEN = re.compile(rf"<(script|style|code|kbd|samp|var)(?:{_ATTRIBUTES}|\s[^<>]{{0,2000}})>", re.IGNORECASE)
_SECTION_OPEN = re.compile(r"<!--|<!\[CDATA\[|<\?(?=[A-Za-z])")
_SECTIONS = {
    "<!--": ("-->", SpanKind.MARKUP),
    "<![CDATA[": ("]]>", SpanKind.CODE),
    "<?": ("?>", SpanKind.MARKUP),
}

_ENTITY = re.compile(r"&(?:[A-Za-z][A-Za-z0-9]{1,31}+|#\d{1,7}+|#[xX][0-9A-Fa-f]{1,6}+);")
# A tag that was escaped is still no prose, and its parts mean nothing to a model.
_QUOTE = r"&(?:quot|apos|#34|#39|#x22|#x27);"
_ESCAPED_VALUE = (
    rf"(?:\"[^\"<>]{{0,2000}}+\"|'[^'<>]{{0,2000}}+'|{_QUOTE}(?:(?!{_QUOTE}|&[lg]t;)[^<>]){{0,2000}}+{_QUOTE}"
    r"|[^\s\"'<>=`&]{1,500}+)"
)
_ESCAPED_TAG = re.compile(
    rf"&(?:lt|#60|#x3c);/?[a-z][\w:.-]{{0,40}}+(?:\s++(?:[\w:@.-]{{1,60}}+\s*+=\s*+{_ESCAPED_VALUE}|{_BARE})){{0,30}}+\s*+/?"
    r"&(?:gt|#62|#x3e);",
    re.IGNORECASE,
)


class _Tag(NamedTuple):
    start: int
    end: int
    name: str
    closes: bool
    left_alone: bool  # it says that its element is not to be translated


def markup_spans(text: str) -> Iterator[Span]:
    """Every piece of markup; those inside an element that is left as it is are given too."""
    if "<" in text:
        tags = list(_TAG.finditer(text))
        for match in tags:
            yield code_span(match.start(), match.group(), SpanKind.MARKUP)
        yield from _sections(text)
        if "</" in text:
            yield from _raw_elements(text)
            yield from _elements_left_alone(text, tags)
    if "&" in text:
        yield from _entities(text)


def code_span(start: int, text: str, kind: SpanKind) -> Span:
    """A span of markup or code, which may be a break between sentences."""
    return Span(start, start + len(text), text, SpanKind.BREAK if _BLOCK.match(text) else kind)


def _entities(text: str) -> Iterator[Span]:
    for match in _ESCAPED_TAG.finditer(text):
        yield Span(match.start(), match.end(), match.group(), SpanKind.MARK)
    for match in _ENTITY.finditer(text):
        yield Span(match.start(), match.end(), match.group(), SpanKind.ENTITY)


def _sections(text: str) -> Iterator[Span]:
    """Comments, CDATA and processing instructions, which end at a mark of their own and at no other `>`."""
    unclosed: set[str] = set()
    position = 0
    while match := _SECTION_OPEN.search(text, position):
        position = match.end()
        closing, kind = _SECTIONS[match.group()]
        close = -1 if closing in unclosed else text.find(closing, position)
        if close < 0:
            unclosed.add(closing)
            continue
        position = close + len(closing)
        yield code_span(match.start(), text[match.start() : position], kind)


def _raw_elements(text: str) -> Iterator[Span]:
    """Elements whose content is not prose, as one span each: <script>…</script>."""
    lowered = text.lower()
    if len(lowered) != len(text):
        return  # a character that grows in lower case would shift the positions; the tags alone are still protected
    unclosed: set[str] = set()
    position = 0
    while match := _RAW_OPEN.search(text, position):
        name, position = match.group(1).lower(), match.end()
        close = -1 if name in unclosed else lowered.find(f"</{name}>", position)
        if close < 0:
            unclosed.add(name)
            continue
        position = close + len(name) + 3
        yield code_span(match.start(), text[match.start() : position], SpanKind.CODE)


def _elements_left_alone(text: str, matches: Iterable[re.Match[str]]) -> Iterator[Span]:
    """Elements that say themselves that they are not to be translated, as one span each."""
    ends: dict[int, int] = {}
    open_tags: dict[str, list[_Tag]] = {}
    for tag in _paired(matches):
        of_name = open_tags.setdefault(tag.name, [])
        if not tag.closes:
            of_name.append(tag)
        elif of_name and (opening := of_name.pop()).left_alone:
            ends[opening.start] = tag.end
    for start, end in outermost(ends):
        yield code_span(start, text[start:end], SpanKind.CODE)


def _paired(matches: Iterable[re.Match[str]]) -> Iterator[_Tag]:
    """Those that open an element or close one."""
    for match in matches:
        name = (match["name"] or "").lower()
        if not name or name in VOID or match["empty"]:
            continue
        yield _Tag(match.start(), match.end(), name, bool(match["close"]), _is_left_alone(match["attributes"].lower()))


def _is_left_alone(attributes: str) -> bool:
    """Whether they say that the element is not to be translated, as browsers understand it."""
    if "translate" not in attributes:
        return False
    for name, value in _NAMED_VALUE.findall(attributes):
        words = value.strip("\"'").split()
        if (name == "translate" and words == ["no"]) or (name == "class" and "notranslate" in words):
            return True
    return False
