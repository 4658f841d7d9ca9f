"""Entities that are parts of words are read as characters; entities that markup needs stay as they are."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.service.translation.entities import read_entities
from dragoman.service.translation.placeholders import find_spans
from dragoman.service.translation.segments import SourceSegment
from tests.bundles.fakes import write_bundle
from tests.translation.asking import events_of, streamed_text, translate
from tests.translation.conftest import OpenTranslator
from tests.translation.generated import texts
from tests.translation.splitting import SplitText


def read(text: str) -> str:
    return read_entities(text, find_spans(text)).text


@pytest.mark.parametrize(
    ("text", "as_read"),
    [
        ("I don&#39;t know", "I don't know"),
        ("Don&#8217;t go, it&#x2019;s late.", "Don’t go, it’s late."),
        ("<p>O c&atilde;o &eacute; preto</p>", "<p>O cão é preto</p>"),
        ("&Eacute; tarde, N&Atilde;O?", "É tarde, NÃO?"),
        ("&quot;O gato dorme.&quot; Ele saiu.", '"O gato dorme." Ele saiu.'),
        ("Disse &ldquo;<b>sim</b>&rdquo; ontem", "Disse “<b>sim</b>” ontem"),
        ("guarda&shy;chuva", "guarda\u00adchuva"),
        ("cafe&#769;", "cafe\u0301"),
        ("Sala &#49;&#50;", "Sala 12"),
    ],
)
def test_what_words_are_written_with_is_read(text: str, as_read: str) -> None:
    """With a placeholder in the middle of a word, a model reads two halves."""
    assert read(text) == as_read


@pytest.mark.parametrize(
    "text",
    [
        *("AT&amp;T cresce", "a &lt; b", "x &gt; y", "um&nbsp;gato", "fim&hellip;", "2 &euro;", "antes &#39; depois"),
        *("&foo;", "&eacutes;", "&#55296;a", "a&#0;b", "&lt;b&gt;gato&lt;/b&gt;"),
        *('<a title="caf&eacute; &quot;x&quot;">gato</a>', "`caf&eacute;`", "<code>&eacute;</code>"),
        "https://example.com/caf&eacute;s",
    ],
)
def test_what_markup_needs_and_what_no_word_is_written_with_stays(text: str) -> None:
    """A plain `<` would be a tag, and a plain quotation mark in an attribute would end it."""
    assert read(text) == text


@pytest.mark.parametrize(
    "text", ["<&#115;cript>x</script>", "<s&#99;ript>x</script>", "<img um on&#101;rror=x>", "</&#98;>", "<a &#98; <i"]
)
def test_reading_makes_no_tags(text: str) -> None:
    """What is no script and no attribute in the source must not become one in the translation."""
    assert read(text) == text


@pytest.mark.parametrize("text", ["< &#101;", "<b>&#101;</b>", "1 <2, 3 > 2 &#101;", "<a b <i> c&#101;"])
def test_behind_a_bracket_that_opens_no_tag_entities_are_read(text: str) -> None:
    """`<` may mean "less than"."""
    assert read(text) == text.replace("&#101;", "e")


def test_an_escaped_tag_is_one_span() -> None:
    """Its parts mean nothing to a model; comparisons are not tags."""
    text = "&lt;a href=&quot;x&quot; class='y'&gt;O gato&lt;/a&gt; dorme &lt;br/&gt; aqui"
    spans = ["&lt;a href=&quot;x&quot; class='y'&gt;", "&lt;/a&gt;", "&lt;br/&gt;"]
    assert [span.text for span in find_spans(text)] == spans
    assert [span.text for span in find_spans("se x &lt;y e z&gt; w")] == ["&lt;", "&gt;"]


def test_segments_are_ranges_of_the_text_as_it_was_sent() -> None:
    """A client that highlights a segment looks for it in the text that it sent."""
    text = "&Eacute; um c&atilde;o. A casa &eacute; azul."
    reading = read_entities(text, find_spans(text))
    assert reading.text == "É um cão. A casa é azul."
    sent = SplitText(text, reading.as_sent((SourceSegment(0, 9, False), SourceSegment(10, 24, False))))
    assert [sent.source(0), sent.source(1)] == ["&Eacute; um c&atilde;o.", "A casa &eacute; azul."]
    assert sent.separator(1) == " "


@given(
    st.lists(
        st.sampled_from(["a", " ", "&eacute;", "&#39;", "&amp;", "<b>", "é", ".", "&quot;"]) | texts(), max_size=12
    )
)
@settings(max_examples=300, deadline=None)
def test_any_range_of_what_was_read_is_found_in_what_was_sent(pieces: list[str]) -> None:
    """Reading every range as it was sent gives the range again."""
    text = "".join(pieces)
    reading = read_entities(text, find_spans(text))
    for start in range(len(reading.text)):
        character = SplitText(text, reading.as_sent([SourceSegment(start, start + 1, False)])).source(0)
        as_read = reading.text[start]
        assert character == as_read or read(f"a{character}a") == f"a{as_read}a"


async def test_a_translation_writes_plain_characters(tmp_path: Path, open_translator: OpenTranslator) -> None:
    """Through a model that copies: whole and streamed, with the source as it was sent."""
    write_bundle(tmp_path / "pt-en")
    translator = open_translator(tmp_path)
    text = "<p>O c&atilde;o &eacute; do gato&#39;s.</p>&nbsp;<p>Fim</p>"
    translation = await translate(translator, text)
    assert translation.text == "<p>O cão é do gato's.</p>&nbsp;<p>Fim</p>"
    assert [segment.source for segment in translation.segments] == ["O c&atilde;o &eacute; do gato&#39;s.", "Fim"]
    assert streamed_text(await events_of(translator, text)) == translation.text


async def test_a_term_is_found_however_it_is_escaped(tmp_path: Path, open_translator: OpenTranslator) -> None:
    """The glossary has `cão`, and the text `c&atilde;o`."""
    write_bundle(tmp_path / "pt-en")
    translation = await translate(open_translator(tmp_path), "O c&atilde;o dorme.", glossary={"cão": "hound"})
    assert translation.text == "O hound dorme."
