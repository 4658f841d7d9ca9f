"""Markup is found whole, whatever its attributes hold; prose with angle brackets is none; nothing takes long."""

import pytest

from dragoman.service.translation.placeholders import find_spans
from dragoman.service.translation.spans import Span, SpanKind


def found(text: str) -> list[str]:
    return [span.text for span in find_spans(text)]


def kinds(text: str) -> list[SpanKind]:
    return [span.kind for span in find_spans(text)]


@pytest.mark.parametrize(
    "tag",
    [
        *("<div data-menu>", '<div class="[&>p]:mt-4">', '<a href="#" onclick="if (a > b) go()">'),
        *("<video playsinline autoplay src='a.mp4'>", "<img alt='a < b' />", '<a href="x"title="y">'),
        f'<img src="data:image/png;base64,{"A" * 5000}">',
        *('<?xml version="1.0" encoding="UTF-8"?>', "<!-- a > b <c> -->", "<!---->", "<![CDATA[ a < b, <i>sim</i> ]]>"),
        *("<button @click='a' :disabled v-else>", "<a\n  href='x'\n>", "<a href=x/y>", "</div >", "<x-y.z:w/>"),
        *('<code class="a>b">x</code>', "<script>if (a<b) c='</p>'</script>", "<!DOCTYPE html>"),
    ],
)  # fmt: skip
def test_markup_is_found_whole(tag: str) -> None:
    """What was not taken for a tag went to the model, which made words of it."""
    assert found(f"Antes {tag} depois.") == [tag]


@pytest.mark.parametrize(
    "text",
    [
        *("a < b e c > d", "if x <y then z> w", "se a <b e c> d", "Escreva <título do livro> aqui", "x <y non z> w"),
        *("i<n && j>m", "a <= b >= c", "<- seta ->", "<!- não -->", "<? não ?>", "<![CDATA[ aberto", "<!-- aberto"),
    ],
)
def test_prose_in_angle_brackets_is_no_markup(text: str) -> None:
    """A span too many is a word that is not translated; nor is anything that nobody closes."""
    assert not {SpanKind.MARKUP, SpanKind.BREAK, SpanKind.CODE} & set(kinds(text))


@pytest.mark.parametrize(
    "element",
    [
        *('<span translate="no">um gato</span>', "<b translate=no>um</b>", "<i class='a notranslate'>um <u>só</u></i>"),
        *('<span class="notranslate">um <span>gato</span> preto</span>', "<B Translate='No'>um</b>"),
        '<b translate="no">um <b class="notranslate">gato</b> só</b>',
    ],
)  # fmt: skip
def test_elements_that_are_not_to_be_translated_are_left_alone(element: str) -> None:
    """Up to the tag that closes them, and not the first of their name."""
    assert find_spans(f"O {element} dorme.") == (Span(2, 2 + len(element), element, SpanKind.CODE),)


@pytest.mark.parametrize(
    "text",
    [
        *('<b translate="yes">um</b>', '<b class="notranslated">um</b>', '<b title="translate=no">um</b>'),
        "<b translate>um</b>",
        *('<b translate="no">um</i>', "<br class='notranslate'>um</br>", '<b translate="no"/>um</b>'),
    ],
)  # fmt: skip
def test_other_elements_are_translated(text: str) -> None:
    """Only what says so, and is closed, is left alone; the tags are taken out as ever."""
    assert "um" not in "".join(found(text))


@pytest.mark.parametrize(
    "piece",
    [
        *("<a ", "<!--", "<![CDATA[", "<?a ", '<a b="', "<a b='\"", "<a b=\"' c='\" ", '<a b="" ', "<b data-"),
        "<code a='",
        *("<code>", '<b translate="no">', "&lt;a ", "&lt;a b=&quot;", '&lt;a b="', "<a " + 'b="c" ' * 49, "<a b\t=\t"),
    ],
)  # fmt: skip
def test_markup_that_nobody_closes_takes_no_longer_than_other_text(piece: str) -> None:
    """Looked for up to the end from each beginning, a million characters would take hours."""
    assert find_spans(piece * (1_000_000 // len(piece)) + " fim.") is not None


def test_elements_within_each_other_are_one_span() -> None:
    """A copy of each would take the square of the text's length in memory."""
    text = "<b translate=no>" * 50_000 + "</b>" * 50_000
    assert [(span.start, span.end) for span in find_spans(text)] == [(0, len(text))]
