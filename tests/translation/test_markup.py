"""Markup is found whole, whatever its attributes hold; prose with angle brackets is no markup; no search takes long."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.service.translation.markup import Tag, elements_named, pair_tags, read_tag
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
    """A tag that is not found goes to the model, which makes words of it."""
    assert found(f"Antes {tag} depois.") == [tag]


@pytest.mark.parametrize(
    "text",
    [
        *("a < b e c > d", "if x <y then z> w", "se a <b e c> d", "Escreva <título do livro> aqui", "x <y non z> w"),
        *("i<n && j>m", "a <= b >= c", "<- seta ->", "<!- não -->", "<? não ?>", "<![CDATA[ aberto", "<!-- aberto"),
    ],
)
def test_prose_in_angle_brackets_is_no_markup(text: str) -> None:
    """A word that is taken for markup is not translated; nor is a comment that is never closed."""
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
    """Up to the tag that closes them, which need not be the first closing tag of that name."""
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
    """Only an element that says so and is closed is left alone; its tags are taken out anyway."""
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
    """If each opening were searched to the end of the text, a million characters would take hours."""
    assert find_spans(piece * (1_000_000 // len(piece)) + " fim.") is not None


def test_elements_within_each_other_are_one_span() -> None:
    """A copy of each would take memory quadratic in the length of the text."""
    text = "<b translate=no>" * 50_000 + "</b>" * 50_000
    assert [(span.start, span.end) for span in find_spans(text)] == [(0, len(text))]


@pytest.mark.parametrize(
    ("text", "tag"),
    [
        ("<b>", Tag("b", True, False)),
        ("<A href='x'>", Tag("a", True, False)),
        ("</x:y-z >", Tag("x:y-z", False, True)),
        ("<1>", Tag("1", True, False)),
        ("</1>", Tag("1", False, True)),
        ("<br>", Tag("br", False, False)),
        ("<img src='x'/>", Tag("img", False, False)),
        ("<i/>", Tag("i", False, False)),
        ("&lt;b&gt;", Tag("b", True, False)),
        ("&#60;/B&#62;", Tag("b", False, True)),
        ("&#x3c;b /&#x3E;", Tag("b", False, False)),
        ("__", Tag("__", True, True)),
        ("<!-- b -->", Tag(None, False, False)),
    ],
)
def test_a_tag_is_read_in_one_way(text: str, tag: Tag) -> None:
    """Plain, escaped and numbered tags, when they are found, trimmed and placed."""
    assert read_tag(text) == tag


@pytest.mark.parametrize(
    ("tags", "pairs"),
    [
        ("<b> </b>", {0: 1}),
        ("<b> <i> </i> </b>", {0: 3, 1: 2}),
        ("<b> <b> </b> </b>", {0: 3, 1: 2}),
        ("<b> <i> </b> </i>", {0: 2}),
        ("</b> <b>", {}),
        ("<b> <br> </b>", {0: 2}),
        ("_ __ __ _ _", {0: 3, 1: 2}),
    ],
)
def test_tags_are_paired_as_elements_are_nested(tags: str, pairs: dict[int, int]) -> None:
    """A tag that would close across another element's end has no partner."""
    assert pair_tags([read_tag(tag) for tag in tags.split()]) == pairs


@given(st.lists(st.sampled_from(["<b>", "</b>", "<i>", "</i>", "_", "<br>", "<!-- -->"]), max_size=30))
def test_pairs_never_cross(tags: list[str]) -> None:
    """Whatever the tags are: no tag is in two pairs, and elements are inside one another or beside each other."""
    read = [read_tag(tag) for tag in tags]
    pairs = pair_tags(read)
    places = [*pairs, *pairs.values()]
    assert len(set(places)) == len(places)
    for opening, closing in pairs.items():
        assert opening < closing
        assert read[opening].name == read[closing].name
        assert not any(opening < other < closing < end for other, end in pairs.items())


def test_many_tags_without_partners_are_paired_in_no_time() -> None:
    """A search among all open tags for each closing tag would take minutes."""
    names = [f"<a{random.Random(number).randint(0, 50_000)}>" for number in range(50_000)]
    assert pair_tags([read_tag(tag) for tag in (*names, *["</b>"] * 50_000)]) == {}


@pytest.mark.parametrize(
    ("text", "elements"),
    [
        ("<x>um <x>dois</x> três</x> <y>quatro</y>", ["<x>um <x>dois</x> três</x>"]),
        ("<X>um</X> <x>dois</x>", ["<x>dois</x>"]),
        ("<x a='b'>um</x > <x/> dois</x>", ["<x a='b'>um</x >"]),
        ("<x>aberto", []),
    ],
)
def test_elements_are_found_by_name(text: str, elements: list[str]) -> None:
    """From the opening tag to the one that closes it; upper and lower case differ, as in XML."""
    assert list(elements_named(text, {"x"})) == elements
