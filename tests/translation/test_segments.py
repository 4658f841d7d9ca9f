"""Splitting loses no character, cuts nothing that must stay whole, and leaves layout to the separators."""

from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dragoman.service.translation import segments
from dragoman.service.translation.placeholders import find_spans
from dragoman.service.translation.spans import Span, SpanKind
from tests.translation.generated import texts
from tests.translation.splitting import SplitText, split


def sources(parts: SplitText) -> list[str]:
    return [parts.source(index) for index in range(len(parts.segments))]


def split_all(text: str, max_characters: int = 10_000, language: str = "pt") -> SplitText:
    return split(text, language, find_spans(text), lambda start, end: end - start <= max_characters)


def assert_whole(parts: SplitText, text: str) -> None:
    """Joins back exactly; segments are in order, hold words, and have no blanks at their edges."""
    assert parts.join(sources(parts)) == text
    position = 0
    for segment in parts.segments:
        assert position <= segment.start < segment.end
        position = segment.end
    assert all(source == source.strip() for source in sources(parts))


@given(texts(), st.sampled_from(["pt", "en", "zh", "xx", ""]), st.integers(1, 80), st.booleans())
@example("\r\n\t  1. Olá.\u00a0\u2028 - {x}\x85", "pt", 5, True)
@example("\ufeff\u200b", "pt", 5, True)
@example("a\u0301" * 60, "pt", 7, True)
@settings(max_examples=600, deadline=None)
def test_segments_join_back_exactly(text: str, language: str, limit: int, sentences: bool) -> None:
    """Layout survives, whatever the text is and whatever the library does."""
    spans = find_spans(text)
    parts = split(text, language, spans, lambda start, end: end - start <= limit, sentences)
    assert_whole(parts, text)


@given(texts(), st.integers(1, 60))
@settings(max_examples=400, deadline=None)
def test_no_cut_goes_through_a_span(text: str, limit: int) -> None:
    """Half an address is no address."""
    spans = find_spans(text)
    parts = split(text, "pt", spans, lambda start, end: end - start <= limit)
    for segment in parts.segments:
        for span in spans:
            inside = segment.start <= span.start and span.end <= segment.end
            outside = span.end <= segment.start or segment.end <= span.start
            assert inside or outside


@given(st.text(alphabet="abc ,;:. é\u0301中", min_size=1, max_size=400), st.integers(1, 40))
@settings(max_examples=300, deadline=None)
def test_every_segment_fits_and_parts_say_that_they_are_parts(text: str, limit: int) -> None:
    """A model would silently cut a source that is too long, so no segment may be."""
    parts = split(text, "pt", (), lambda start, end: end - start <= limit)
    assert all(segment.end - segment.start <= limit for segment in parts.segments)
    whole = split(text, "pt")
    if all(segment.end - segment.start <= limit for segment in whole.segments):
        assert parts == whole
        assert not any(segment.cut for segment in parts.segments)
    else:
        assert any(segment.cut for segment in parts.segments)


def test_layout_belongs_to_the_separators() -> None:
    """Bullets, numbering, indentation, quotes, tables, blank lines and trailing spaces come back as they were."""
    text = "# Título\n\n- um item  \n  * outro\n\t1. primeiro\n  2) segundo\n> citado\n- [x] feito\n| nome | idade |\n"
    words = ["Título", "um item", "outro", "primeiro", "segundo", "citado", "feito", "nome", "idade"]
    assert sources(split_all(text)) == words


def test_sentences_are_split_and_abbreviations_are_not() -> None:
    """The sentence library does what it is used for."""
    assert sources(split_all("O Sr. Silva chegou.  Como vai?")) == ["O Sr. Silva chegou.", "Como vai?"]


@pytest.mark.parametrize("space", ["\u00a0", "\u2003", "\u202f", "\u3000"])
def test_spaces_of_several_bytes_split_as_plain_ones(space: str) -> None:
    """The library fails inside such a space before a full stop."""
    plain = ["The letter A .", "It is the first one."]
    assert sources(split_all(" ".join(plain), language="en")) == plain
    text = f"The letter A{space}. It is the first one."
    assert sources(split_all(text, language="en")) == [f"The letter A{space}.", plain[1]]


def test_a_library_that_panics_costs_no_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """A panic in Rust is not an Exception but must not fail the request; any other BaseException goes on."""
    panic = type("PanicException", (BaseException,), {})

    def fail(error: type[BaseException]) -> Callable[[str, str], list[str]]:
        def segment(language: str, text: str) -> list[str]:
            raise error

        return segment

    monkeypatch.setattr(segments.sentencex, "segment", fail(panic))
    assert sources(split_all("Um. Dois.")) == ["Um. Dois."]
    monkeypatch.setattr(segments.sentencex, "segment", fail(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        split_all("Um. Dois.")


def test_addresses_end_no_sentence() -> None:
    """Points and question marks inside an address are not punctuation."""
    text = "Veja https://example.com/a.b?c=d. Depois volte."
    assert sources(split_all(text)) == ["Veja https://example.com/a.b?c=d.", "Depois volte."]


def test_without_sentence_splitting_only_lines_are_split() -> None:
    """DeepL's split_sentences=0; line breaks still separate, because no model keeps them."""
    parts = split("Um. Dois.\nTrês.", "pt", split_sentences=False)
    assert sources(parts) == ["Um. Dois.", "Três."]


def test_what_has_no_words_is_no_segment() -> None:
    """For numbers, rules and blanks alone a model would invent text."""
    for text in ("", "   ", "\n\n", "---", "12345", "3,14 + 2", "😀", "https://example.com", "\u00a0\ufeff"):
        assert split_all(text).segments == ()


def test_a_glossary_term_alone_is_a_segment() -> None:
    """It has a translation, so it must not become a separator."""
    span = Span(0, 4, "Mycelium", SpanKind.GLOSSARY)
    assert sources(split("Bolo", "pt", [span])) == ["Bolo"]


def test_emoji_and_tags_at_the_edge_stay_outside() -> None:
    """A model cannot lose what it does not see."""
    assert sources(split_all("👋 Olá, tudo bem? 😀")) == ["Olá, tudo bem?"]
    assert sources(split_all("<p><b>Olá mundo</b></p>")) == ["Olá mundo"]
    assert sources(split_all("<b>Olá</b> mundo")) == ["<b>Olá</b> mundo"]
    assert sources(split_all("Um<br/>Dois")) == ["Um", "Dois"]
    assert sources(split_all("&lt;i&gt;Olá mundo&lt;/i&gt;")) == ["Olá mundo"]
    assert sources(split_all("&lt;i&gt;Olá&lt;/i&gt; mundo")) == ["&lt;i&gt;Olá&lt;/i&gt; mundo"]


def test_a_pair_of_underscores_is_left_outside_as_a_pair_of_tags_is() -> None:
    """Both marks of a pair go, or none."""
    around, within = "_Olá mundo_", "_Olá_ mundo"
    marks = [Span(0, 1, "_", SpanKind.MARK), Span(10, 11, "_", SpanKind.MARK)]
    assert sources(split(around, "pt", marks)) == ["Olá mundo"]
    assert sources(split(within, "pt", [marks[0], Span(4, 5, "_", SpanKind.MARK)])) == [within]


def test_long_sentences_are_cut_at_clauses_first() -> None:
    """A clause translates better than half of one."""
    text = "Quando o homem chegou à cidade, viu que tudo estava fechado; por isso voltou para casa."
    parts = split_all(text, max_characters=50)
    assert sources(parts) == [
        "Quando o homem chegou à cidade,",
        "viu que tudo estava fechado;",
        "por isso voltou para casa.",
    ]
    assert all(segment.cut for segment in parts.segments)


def test_a_word_of_50000_characters_is_cut_into_parts_that_fit() -> None:
    """Never cut off: every character is in some part."""
    text = "a" * 50_000
    parts = split_all(text, max_characters=100)
    assert all(segment.end - segment.start <= 100 and segment.cut for segment in parts.segments)
    assert "".join(sources(parts)) == text


def test_a_cut_does_not_separate_an_accent_from_its_letter() -> None:
    """Characters that a reader sees as one stay together if possible."""
    parts = split_all("e\u0301" * 100, max_characters=7)
    assert all(source.startswith("e") for source in sources(parts))


def test_a_sentence_that_can_be_cut_nowhere_is_given_whole() -> None:
    """A single span that does not fit cannot be cut; its segment says that it is a part."""
    text = "termo" * 20
    parts = split(text, "pt", [Span(0, len(text), text, SpanKind.GLOSSARY)], lambda start, end: False)
    assert sources(parts) == [text]


def test_any_number_of_tags_at_the_edges_are_left_out() -> None:
    """From both ends, pairs and single tags; when each was compared with all others, a long text took minutes."""
    names = [f"t{number}" for number in range(20_000)]
    before, after = "".join(f"<{name}>" for name in names), "".join(f"</{name}>" for name in reversed(names))
    text = f"{before}<br/>O gato dorme.<i/>{after}"
    assert [text[s.start : s.end] for s in split(text, "pt", find_spans(text)).segments] == ["O gato dorme."]


@pytest.mark.parametrize(
    ("text", "sources_"),
    [
        ("<b>O <b>gato</b> dorme.</b>", ["O <b>gato</b> dorme."]),
        ("<img src='a'> O gato <img src='b'> dorme.", ["O gato <img src='b'> dorme."]),
        ("<b>O gato</b> e <b>a casa</b>", ["<b>O gato</b> e <b>a casa</b>"]),
        ("&#60;i&#62;O gato&#60;/i&#62;", ["O gato"]),
    ],
)
def test_a_tag_at_the_edge_stays_only_with_a_partner_inside(text: str, sources_: list[str]) -> None:
    """Tags are paired as elements are nested; how many others have the same name does not matter."""
    assert sources(split_all(text)) == sources_
