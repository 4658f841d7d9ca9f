"""Messages with a choice in them are one span each, up to their own closing brace."""

import pytest

from dragoman.service.translation.placeholders import find_spans
from dragoman.service.translation.spans import SpanKind


@pytest.mark.parametrize(
    "message",
    [
        "{count, plural, =0 {no items} one {one item} other {# items}}",
        "{ who , select , female {{n, plural, one {her cat} other {her cats}}} other {their cats} }",
        "{n,selectordinal,one{#st}two{#nd}\nother{#th}}",
        "{x, select, a {'{'} other {b}}",
    ],
)
def test_a_message_is_one_span(message: str) -> None:
    """A model would translate its keywords, and then no program could read it."""
    (span,) = find_spans(f"You have {message} in your cart.")
    assert (span.text, span.kind) == (message, SpanKind.VARIABLE)


@pytest.mark.parametrize(
    "text", ["{n, plural, one {um", "{ veja, plural, isto", "{plural}", "o plural, {assim} por diante"]
)
def test_what_is_no_message_or_not_closed_is_none(text: str) -> None:
    """Only balanced braces say where one ends."""
    assert not [span for span in find_spans(text) if "," in span.text]


def test_messages_that_nobody_closes_take_no_longer_than_other_text() -> None:
    """If each were searched to the end of the text, these would take hours."""
    assert find_spans("{n, plural, " * 100_000) == ()
    (span,) = find_spans("{n, plural, " * 50_000 + "}" * 50_000)
    assert span.end == 650_000
