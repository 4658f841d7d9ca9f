"""A request's own terms are found as words, and written as the text writes them."""

import pytest

from service.translation.glossary import Glossary
from service.translation.patterns import SpanKind
from service.translation.placeholders import find_spans

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
    """Longest first; a term with a capital is a name and matches as written; a term for itself is left alone."""
    assert replaced(text, TERMS) == expected


def test_an_address_that_holds_a_term_stays_an_address() -> None:
    """Translating a part of a URL breaks it."""
    assert replaced("Veja https://example.com/gato agora", TERMS) == []


def test_a_term_wins_over_a_pattern_of_the_same_extent() -> None:
    """The user said what to do with it."""
    assert replaced("Fale com @equipe hoje", {"@equipe": "@team"}) == [("@equipe", "@team")]


def test_a_thousand_terms_are_looked_up_by_their_first_word() -> None:
    """A large glossary must not make every position of the text try every term."""
    terms = {f"termo{number} especial": f"term {number}" for number in range(1000)}
    assert replaced("Veja termo7 especial e termo999 especial", terms) == [
        ("termo7 especial", "term 7"),
        ("termo999 especial", "term 999"),
    ]
