"""Find ICU messages: `{count, plural, one {one item} other {# items}}`, each as one span that is not translated.

A message is a small program: its keywords and braces must stay as they are. To have its texts translated, send them one
by one.
"""

import re
from collections.abc import Iterator

from dragoman.service.translation.spans import Span, SpanKind, outermost

_OPENING = re.compile(r"\{\s*+[\w.-]{1,60}+\s*+,\s*+(?:plural|select|selectordinal)\s*+,")
_BRACE = re.compile(r"'[{}]'|[{}]")  # a brace between apostrophes is text


def message_spans(text: str) -> Iterator[Span]:
    """The messages whose braces are balanced; one pass pairs all braces."""
    openings = {match.start() for match in _OPENING.finditer(text)} if "{" in text else set()
    if not openings:
        return
    ends: dict[int, int] = {}
    waiting: list[int] = []
    for brace in _BRACE.finditer(text):
        if brace.group() == "{":
            waiting.append(brace.start())
        elif brace.group() == "}" and waiting and (start := waiting.pop()) in openings:
            ends[start] = brace.end()
    for start, end in outermost(ends):
        yield Span(start, end, text[start:end], SpanKind.VARIABLE)
