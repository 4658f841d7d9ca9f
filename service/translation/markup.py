"""Markup: find it in a text, read what a tag says, and find the tag that closes another.

A translation leaves markup as it is: tags, comments, entities, and elements whose content is not prose. Markup is found
in every text, whatever the caller says about the text; `a < b` is no markup. An element that is marked
`translate="no"` or `class="notranslate"` is left as it is, from its first tag to the tag that closes it.

All searches are linear in the length of the text. A quoted value may hold anything but its own quotation mark and may
have any length: a search that begins at one tag ends where a later tag has its quotation marks, and a tag has a bounded
number of them. What ends with a mark of its own (comments, scripts) is searched with `find`, and not searched again
once the mark was missing.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from dragoman.service.translation.spans import Span, SpanKind, outermost

# Attributes without a value. Any other needs a hyphen or a mark in its name: words in angle brackets are not markup.
_BARE = (
    r"(?:allowfullscreen|async|autofocus|autoplay|checked|compact|contenteditable|controls|crossorigin|declare|default|defer|"
    r"disabled|download|draggable|formnovalidate|hidden|inert|ismap|itemscope|loop|multiple|muted|nomodule|noresize|noshade|"
    r"novalidate|nowrap|open|playsinline|popover|readonly|required|reversed|scoped|seamless|selected|translate)(?![\w-])"
    r"|[a-z][a-z0-9]{0,30}+(?:-[\w.:]{1,60}+){1,8}+|[@:*#][\w.:-]{1,60}+"
)
_VALUED = r"[^\s\"'<>/=]{1,100}+\s*+=\s*+(?:\"[^\"]*+\"|'[^']*+'|[^\s\"'<>=`]{1,2000}+)"
_ATTRIBUTES = rf"(?:(?:\s++|(?<=[\"']))(?:{_VALUED}|{_BARE})){{0,50}}+\s*+"
_TAG = re.compile(
    rf"</?[A-Za-z][\w:.-]{{0,40}}+(?P<attributes>{_ATTRIBUTES})/?>"
    r"|</?\d{1,3}\s?/?>|<!DOCTYPE[^<>]{0,200}>",
    re.IGNORECASE,
)
_LEFT_ALONE_HINT = re.compile("translate", re.IGNORECASE)  # without this word no element is left alone
_NAMED_VALUE = re.compile(r"([^\s\"'<>/=]{1,100}+)\s*+=\s*+(\"[^\"]*+\"|'[^']*+'|[^\s\"'<>=`]++)")
# Elements without content: no tag closes them.
_VOID = frozenset(
    ("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr")
)
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
# An escaped tag is no prose either, and its parts mean nothing to a model.
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


# What an opening or closing tag begins and ends with, plain or escaped.
_TAG_START = re.compile(r"(?:<|&(?:lt|#60|#x3c);)(?P<close>/?)(?P<name>\w[\w:.-]*+)", re.IGNORECASE)
_EMPTY_END = re.compile(r"/(?:>|&(?:gt|#62|#x3e);)$", re.IGNORECASE)
# A name as XML writes it: its case counts.
TAG_NAME = re.compile(r"[A-Za-z_][\w:.-]{0,63}")
_NAMED_TAG = re.compile(rf"<(?P<close>/?)(?P<name>{TAG_NAME.pattern})(?:\s[^<>]*+)?(?<!/)>")


def markup_spans(text: str) -> Iterator[Span]:
    """Every piece of markup, also inside an element that is left as it is."""
    if "<" in text:
        tags = list(_TAG.finditer(text))
        for match in tags:
            yield code_span(match.start(), match.group(), SpanKind.MARKUP)
        yield from _sections(text)
        if "</" in text:
            yield from _raw_elements(text)
            if _LEFT_ALONE_HINT.search(text):
                yield from _elements_left_alone(text, tags)
    if "&" in text:
        yield from _entities(text)


def is_block(tag: str) -> bool:
    """Whether no sentence runs across it."""
    return _BLOCK.match(tag) is not None


def code_span(start: int, text: str, kind: SpanKind) -> Span:
    """A span of markup or code. Block-level markup separates sentences."""
    return Span(start, start + len(text), text, SpanKind.BREAK if is_block(text) else kind)


def _entities(text: str) -> Iterator[Span]:
    for match in _ESCAPED_TAG.finditer(text):
        yield Span(match.start(), match.end(), match.group(), SpanKind.MARK)
    for match in _ENTITY.finditer(text):
        yield Span(match.start(), match.end(), match.group(), SpanKind.ENTITY)


def _sections(text: str) -> Iterator[Span]:
    """Comments, CDATA and processing instructions: each ends at its own closing mark, not at the next `>`."""
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
    """Elements whose content is not prose, as one span each: `<script>…</script>`."""
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
    """Elements that say that they are not to be translated, as one span each."""
    tags = [
        _Boundary(tag.name, not tag.opens, _is_left_alone((match["attributes"] or "").lower()), *match.span())
        for match in matches
        if (tag := read_tag(match.group())).name is not None and (tag.opens or tag.closes)
    ]
    for start, end in _closed_elements(tags):
        yield code_span(start, text[start:end], SpanKind.CODE)


def _is_left_alone(attributes: str) -> bool:
    """Whether the attributes say that the element is not to be translated, as browsers read them."""
    if "translate" not in attributes:
        return False
    for name, value in _NAMED_VALUE.findall(attributes):
        words = value.strip("\"'").split()
        if (name == "translate" and words == ["no"]) or (name == "class" and "notranslate" in words):
            return True
    return False


# Reading and pairing


class Tag(NamedTuple):
    """What a tag says. Markdown's underscores are tags whose name is the mark, and which open or close."""

    name: str | None  # in lower case; a comment has none
    opens: bool
    closes: bool


_NO_ELEMENT = Tag(None, False, False)


def read_tag(text: str) -> Tag:
    """What a tag says, plain or escaped; comments and the like name no element."""
    if text.startswith("_"):
        return Tag(text, True, True)
    match = _TAG_START.match(text)
    if match is None:
        return _NO_ELEMENT
    name, closes = match["name"].lower(), bool(match["close"])
    return Tag(name, not closes and name not in _VOID and not _EMPTY_END.search(text), closes)


def pair_tags(tags: Sequence[Tag]) -> dict[int, int]:
    """The elements, as the place of the opening tag and that of its closing tag.

    Elements are inside one another or beside each other, never across. A tag that opens an element and is not closed
    before an outer element ends has no partner, nor has a tag that closes nothing.
    """
    pairs: dict[int, int] = {}
    waiting: list[tuple[str | None, int]] = []  # name and place of the elements that are open here
    depths: dict[str | None, list[int]] = {}  # where in `waiting` the elements of a name are
    for place, tag in enumerate(tags):
        of_name = depths.setdefault(tag.name, [])
        if tag.closes and of_name:
            depth = of_name[-1]
            pairs[waiting[depth][1]] = place
            while len(waiting) > depth:
                depths[waiting.pop()[0]].pop()
        elif tag.opens:
            of_name.append(len(waiting))
            waiting.append((tag.name, place))
    return pairs


def elements_named(text: str, names: Collection[str]) -> Iterator[str]:
    """The elements of these names, from opening to closing tag; an element inside another of them is a part of it.

    Upper and lower case differ, as in XML. One pass pairs all tags: with a search for each tag, tags that are never
    closed would each take the whole text.
    """
    tags = [
        _Boundary(match["name"], bool(match["close"]), match["name"] in names, *match.span())
        for match in (_NAMED_TAG.finditer(text) if names else ())
    ]
    for start, end in _closed_elements(tags):
        yield text[start:end]


class _Boundary(NamedTuple):
    """Where an element begins or ends."""

    name: str | None
    closes: bool
    wanted: bool  # the element that begins here is asked for
    start: int
    end: int


def _closed_elements(boundaries: Iterable[_Boundary]) -> Iterator[tuple[int, int]]:
    """The ranges of the wanted elements that are closed; a tag closes the last open element of its name."""
    ends: dict[int, int] = {}
    waiting: dict[str | None, list[_Boundary]] = {}
    for boundary in boundaries:
        of_name = waiting.setdefault(boundary.name, [])
        if not boundary.closes:
            of_name.append(boundary)
        elif of_name and (opening := of_name.pop()).wanted:
            ends[opening.start] = boundary.end
    return outermost(ends)
