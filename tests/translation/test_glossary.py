"""The terms of a glossary are found as words, and written in the case of the text."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.service.errors import TooLarge
from dragoman.service.translation.contract import TranslationLimits, TranslationOptions
from dragoman.service.translation.glossary import Glossary
from dragoman.service.translation.placeholders import find_spans
from dragoman.service.translation.request_limits import check_request
from dragoman.service.translation.spans import SpanKind

TERMS = {
    "gato": "cat",
    "gato preto": "black cat",
    "aprendizado de máquina": "machine learning",
    "Porto": "Oporto",
    "US": "EUA",
    "C++": "C plus plus",
    "dragoman": "dragoman",
    "Dragoman Pro": "Dragoman Pro",
    "iphone": "iPhone",
}


def replaced(text: str, terms: dict[str, str]) -> list[tuple[str, str]]:
    spans = find_spans(text, Glossary(terms))
    return [(text[span.start : span.end], span.text) for span in spans if span.kind is SpanKind.GLOSSARY]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("O gato dorme", [("gato", "cat")]),
        ("Gato que dorme", [("Gato", "Cat")]),
        ("GATO!", [("GATO", "CAT")]),
        ("os gatos e o gatuno", []),
        ("um gato preto", [("gato preto", "black cat")]),
        ("um gato\u00a0preto", [("gato\u00a0preto", "black cat")]),
        ("O aprendizado  de máquina", [("aprendizado  de máquina", "machine learning")]),
        ("Fui ao Porto e ao porto", [("Porto", "Oporto")]),
        ("Os US e us", [("US", "EUA")]),
        ("Sei C++.", [("C++", "C plus plus")]),
        ("O Dragoman e o dragoman", [("Dragoman", "Dragoman"), ("dragoman", "dragoman")]),
        ("O Dragoman Pro", [("Dragoman Pro", "Dragoman Pro")]),
        ("O Dragoman\u00a0Pro", [("Dragoman\u00a0Pro", "Dragoman\u00a0Pro")]),
        ("O meu iphone e o meu IPHONE", [("iphone", "iPhone"), ("IPHONE", "iPhone")]),
    ],
)
def test_terms_match_whole_words_and_take_the_case_of_the_text(text: str, expected: list[tuple[str, str]]) -> None:
    """The longest term is taken; a term with a capital matches as written; a term that maps to itself is copied."""
    assert replaced(text, TERMS) == expected


def test_an_address_that_holds_a_term_stays_an_address() -> None:
    """Translating a part of a URL breaks it."""
    assert replaced("Veja https://example.com/gato agora", TERMS) == []


def test_a_term_wins_over_a_pattern_of_the_same_extent() -> None:
    """The caller said what to do with it."""
    assert replaced("Fale com @equipe hoje", {"@equipe": "@team"}) == [("@equipe", "@team")]


def test_a_thousand_terms_are_looked_up_by_their_first_word() -> None:
    """A large glossary must not make every position of the text try every term."""
    terms = {f"termo{number} especial": f"term {number}" for number in range(1000)}
    assert replaced("Veja termo7 especial e termo999 especial", terms) == [
        ("termo7 especial", "term 7"),
        ("termo999 especial", "term 999"),
    ]


def spans_by_trying_every_term(text: str, terms: dict[str, str]) -> list[tuple[int, int, str]]:
    """The same result, slowly: a regular expression for each term."""
    found = []
    for token in re.finditer(r"\w+|[^\w\s]", text):
        for term in sorted(terms, key=len, reverse=True):
            first = re.search(r"\w+|[^\w\s]", term)
            assert first is not None
            before, after = r"(?<!\w)" * term.strip()[0].isalnum(), r"(?!\w)" * term.strip()[-1].isalnum()
            words = before + r"\s+".join(map(re.escape, term.split())) + after
            pattern = re.compile(words, re.IGNORECASE if term == term.lower() else 0)
            match = pattern.match(text, token.start())
            if match and token.group().casefold() == first.group().casefold():
                found.append((match.start(), match.end(), terms[term]))
                break
    return found


LETTERS = ["a", "A", "b", "s", "S", "ſ", "ß", "ẞ", "i", "I", "σ", "ς", "Σ", "k", "\u212a", "é", "É", "1"]
PIECES = st.sampled_from([*LETTERS, " ", " ", "  ", "\n", "\u00a0", ".", "+", "\u0301"])
TEXTS = st.lists(PIECES, min_size=1, max_size=8).map("".join)


@given(
    text=st.lists(PIECES, max_size=40).map("".join),
    terms=st.lists(st.one_of(TEXTS, TEXTS.map(str.lower)).filter(str.strip), max_size=8),
)
def test_the_tree_finds_what_trying_every_term_finds(text: str, terms: list[str]) -> None:
    """The quick search finds what the slow one finds: letters with several cases, any spaces, marks inside words."""
    glossary = {term: f"{number}" for number, term in enumerate(terms)}
    found = [(span.start, span.end, span.text) for span in Glossary(glossary).spans(text)]
    assert found == spans_by_trying_every_term(text, glossary)


def test_a_place_is_read_once_however_many_terms_begin_alike() -> None:
    """When each term was tried at each place, a request of a kilobyte took minutes."""
    terms = {"a " * 90 + f"b{number}": "x" for number in range(1000)}
    assert replaced("a " * 20_000 + "b7", terms) == [("a " * 90 + "b7", "x")]


def test_terms_as_long_as_the_text_are_found() -> None:
    """An ignored element may be a whole page; it was compared anew at each place of the text."""
    element = "<x>" * 10_000 + "</x>"
    assert replaced(f"{element} gato {element}", {element: element, "gato": "cat"})[-2:] == [
        ("gato", "cat"),
        (element, element),
    ]


def test_pages_that_overlap_are_told_once() -> None:
    """A copy of the page for each of its words would take gigabytes."""
    page = "a " * 5000 + "a"
    spans = list(Glossary({page: page}).spans("a " * 20_000))
    assert [(span.start, span.end) for span in spans] == [(begin, begin + 10_001) for begin in (0, 10_002, 20_004)]


def test_a_glossary_that_is_a_book_is_refused() -> None:
    """The message says what to change."""
    with pytest.raises(TooLarge, match="terms have 11 characters; send at most 10"):
        check_request(["gato"], TranslationOptions(glossary={"a" * 11: "x"}), TranslationLimits(max_characters=10))
