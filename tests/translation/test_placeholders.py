"""What is taken out comes back: found whole, counted, and put in its place with the right spaces."""

import csv
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.service.translation.glossary import Glossary
from dragoman.service.translation.patterns import _PROSE, PATTERNS
from dragoman.service.translation.placeholders import (
    Part,
    all_kept,
    chunks_of,
    find_spans,
    numbered,
    plain_text,
    put_back,
    spaced,
    spans_of,
)
from dragoman.service.translation.spans import SpanKind, without_overlaps
from tests.bundles.fakes import tokenizer
from tests.translation.generated import texts

DATA = Path(__file__).parent.parent / "data"


def found(text: str, kind: SpanKind | None = None) -> list[str]:
    return [span.text for span in find_spans(text) if kind in (None, span.kind)]


@pytest.mark.parametrize(
    "span",
    [
        *(
            "https://example.com/a?b=c&d=%20#e",
            "http://user@example.org:8080/x_(y)",
            "ftp://example.com/f",
            "www.example.org/x",
        ),
        *("example.com/path", "mailto:ana@example.com", "ana.luz+loja@mail.example.co.uk"),
        *("😀", "👨‍👩‍👧‍👦", "🇧🇷", "1️⃣", "👍🏽", "❤️", "🏴󠁧󠁢󠁳󠁣󠁴󠁿", "🏳️‍🌈", "👩🏾‍💻", "😀😀", ":smile:", "™", "→"),
        *(
            "{name}",
            "{user.name}",
            "{0}",
            "{}",
            "{price:.2f}",
            "{{x}}",
            "{{ user.name }}",
            "{% if x %}",
            "%{count}",
            "#{id}",
        ),
        *(
            "%s",
            "%d",
            "%.2f",
            "%05d",
            "%1$s",
            "%(name)s",
            "%(total).2f",
            "%@",
            "%%",
            "$VAR",
            "$name",
            "${VAR}",
            "${LOG}/a.log",
        ),
        *(
            "<b>",
            "</b>",
            "<br/>",
            '<a href="https://example.com">',
            "<img src='x.png' alt='um gato'/>",
            "<0>",
            "</0>",
            "<!-- x -->",
        ),
        *("&nbsp;", "&#39;", "&#x27;", "&eacute;", "@ana_luz", "@ana@example.social", "#ferias2026", "#42"),
        *(
            "/usr/local/bin",
            "~/notas.txt",
            "./a/b",
            "../a.md",
            "C:\\Temp\\a.txt",
            "\\\\server\\share",
            "src/main.py",
        ),
        *(
            "relatorio.pdf",
            "fotos.tar.gz",
            "`x = 1`",
            "```\nx = 1\n```",
            "<code>a < b</code>",
            "<script>alert(1)</script>",
        ),
        *("1234567", "PT50000201231234567890154", "AB-1234-XY", "A1B2C3", "9f86d081884c7d65", "+351 912 345 678"),
        *(
            "(11) 91234-5678",
            "192.168.0.1",
            "v1.2.3",
            "550e8400-e29b-41d4-a716-446655440000",
            "\x00",
            "\u200f",
            "\ue000",
        ),
    ],
)
def test_spans_are_found_whole_within_a_sentence(span: str) -> None:
    """Each kind of thing that models break, in mid-sentence and before its full stop."""
    assert found(f"Antes disso {span} depois.") == [span]
    assert "".join(found(f"O valor é {span}.")) in (span, span + ".")


@pytest.mark.parametrize(
    "text",
    [
        *("O gato dorme.", "e/ou", "100 % de desconto", "50% dos casos", "R$ 50", "US$ 100", "1.234.567", "1 234 567"),
        *("1.234,56", "10:30", "12/05/2024", "covid-19", "20h30", "O 3º andar", "AT&T é uma empresa", "a < b e c > d"),
        *("km/h", "Sr. Silva", "Fim.Ele saiu", "Nota: isso", "guarda-chuva", "1990s", "foi em 2024", "(sim)"),
    ],
)
def test_ordinary_writing_is_left_to_the_model(text: str) -> None:
    """A span too many is a word that is not translated."""
    assert found(text) == []


def test_closing_punctuation_belongs_to_the_sentence() -> None:
    """Brackets that an address opens itself are its own."""
    assert found("(veja https://example.com/a).") == ["https://example.com/a"]
    assert found("Veja https://example.com/a_(b)!") == ["https://example.com/a_(b)"]
    assert found('Ele disse "https://example.com", sim') == ["https://example.com"]


def test_brackets_that_an_address_does_not_open_are_the_sentence_s() -> None:
    """Brackets are counted once: when each was counted anew, a long tail took seconds."""
    (span,) = find_spans("(veja http://exemplo.pt/a_(b))" + ")" * 100_000)
    assert span.text == "http://exemplo.pt/a_(b)"


def test_our_own_sentences_with_placeholders_hold_at_least_one() -> None:
    """Every line of the test data was written to carry something that must survive."""
    with (DATA / "placeholders.tsv").open(encoding="utf-8", newline="") as file:
        lines = [row["text"] for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)]
    assert len(lines) > 200
    assert [line for line in lines if not found(line)] == []


@given(texts())
@settings(max_examples=400, deadline=None)
def test_spans_are_in_order_and_do_not_overlap(text: str) -> None:
    """All other code relies on it."""
    spans = find_spans(text, Glossary({"gato": "cat", "tudo bem": "all well"}), tokenizer().known_characters)
    assert spans == without_overlaps(spans)
    position = 0
    for span in spans:
        assert position <= span.start < span.end <= len(text)
        position = span.end


@given(texts())
@settings(max_examples=400, deadline=None)
def test_taking_out_and_putting_back_is_identity(text: str) -> None:
    """A model that copies gives the text back, space for space."""
    chunks = chunks_of(text, 0, len(text), find_spans(text, known_characters=tokenizer().known_characters))
    assert plain_text(chunks) == text
    parts = numbered(chunks)
    assert all_kept(parts, len(spans_of(chunks)))
    assert plain_text(put_back(parts, chunks)) == text


@given(st.lists(st.integers(0, 5)), st.integers(0, 5))
def test_lost_doubled_and_foreign_placeholders_are_noticed(numbers: list[int], expected: int) -> None:
    """Each placeholder must be there exactly once."""
    assert all_kept(numbers, expected) == (sorted(numbers) == list(range(expected)))


@pytest.mark.parametrize(
    ("source", "parts", "translation"),
    [
        ("Veja {a} agora", ["See", 0, "now"], "See {a} now"),
        ("Veja {a} agora", ["See ", 0, " now"], "See {a} now"),
        ("Veja {a} agora", ["Now see ", 0, "."], "Now see {a}."),
        ("({a})", ["(", 0, ")"], "({a})"),
        ("Olá, {a}!", ["Hello", 0, "!"], "Hello {a}!"),
        ("<b>gato</b> preto", ["black", 0, "cat", 1], "black <b>cat</b>"),
        ("{a}{b}", [0, 1], "{a}{b}"),
        ("{a} e {b}", [1, 0], "{b} {a}"),
        ("{a}px de altura", [0, "px high"], "{a}px high"),
        ("o carro de {a} parou", [0, "'s car stopped"], "{a}'s car stopped"),
        ("Veja {a}", ["See ", 0, 7], "See {a}"),
    ],
)
def test_spaces_are_restored_where_the_model_gave_none(source: str, parts: list[Part], translation: str) -> None:
    """Words and placeholders that touched in the source may touch again; others get a space, punctuation gets none."""
    chunks = chunks_of(source, 0, len(source), find_spans(source))
    assert plain_text(put_back(parts, chunks)) == translation


def test_a_word_behind_a_tag_is_read_as_any_other_word() -> None:
    """A model knows words that begin with a space; the added space is taken away again."""
    text = "O <b>gato</b> e {nome}s"
    chunks = chunks_of(text, 0, len(text), find_spans(text))
    assert numbered(spaced(chunks)) == ["O ", 0, " gato", 1, " e ", 2, "s"]
    assert plain_text(put_back(["The ", 0, " cat", 1, " and ", 2, "s"], chunks)) == "The <b>cat</b> and {nome}s"
    assert plain_text(put_back(["The ", 0, "cat", 1, " and ", 2, "s"], chunks)) == "The <b>cat</b> and {nome}s"


def test_words_in_unknown_characters_are_taken_out_whole_and_together() -> None:
    """A model has not learned characters that its tokenizer lacks, so they are copied."""
    text = "O Łukasz leu «Преступление и наказание» ontem."
    spans = find_spans(text, known_characters=tokenizer().known_characters)
    assert [span.text for span in spans if span.kind is SpanKind.UNKNOWN][:2] == [
        "Łukasz",
        "Преступление и наказание",
    ] or [span.text for span in spans if span.kind is SpanKind.UNKNOWN] == ["Łukasz", "«Преступление и наказание»"]


def test_underscores_around_words_are_marks_and_those_within_make_a_name() -> None:
    """With the underscores as parts of words, emphasized words were copied as unknown."""
    known = tokenizer().known_characters - {"_"}

    def taken(text: str) -> list[tuple[str, SpanKind]]:
        return [(span.text, span.kind) for span in find_spans(text, known_characters=known)]

    assert taken("Um _gato muito bom_ dorme.") == [("_", SpanKind.MARK)] * 2
    assert taken("Um __gato__.") == [("__", SpanKind.MARK)] * 2
    assert taken("O nome_do_gato e _o_gato_.") == [("nome_do_gato", SpanKind.UNKNOWN), ("_o_gato_", SpanKind.UNKNOWN)]
    assert taken("Assine aqui: ____ .") == [("____", SpanKind.UNKNOWN)]


def test_decomposed_letters_are_known_letters() -> None:
    """é in two code points is é."""
    assert find_spans("Ele tomou cafe\u0301.", known_characters=tokenizer().known_characters) == ()


@settings(max_examples=300)
@given(st.text(alphabet=st.sampled_from("aéßЖ\u2139²ªŉ.,;!?'’\"“”«»()–—…- \n\t")) | st.text())
def test_plain_prose_is_known_by_one_look(text: str) -> None:
    """The quick check may skip a text only if no pattern matches in it."""
    if _PROSE.fullmatch(text):
        assert not [match for pattern in PATTERNS for match in pattern.regex.finditer(text)]
