"""Amounts come through to the digit, written as the target language writes them; dates come through as they are."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.service.translation.numbers import changed_numbers, number_spans
from dragoman.service.translation.placeholders import find_spans


def written(text: str, source: str, target: str) -> list[str]:
    return [span.text for span in find_spans(text, languages=(source, target))]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A fatura é de R$ 1.250,00 até 31/01/2025.", ["R$ 1,250.00", "31/01/2025"]),
        ("São 3.000.000 de pessoas.", ["3,000,000"]),
        ("Subiu de 99,90 para 119,9.", ["99.90", "119.9"]),
        ("Custa 5€ ou 12,5%.", ["12.5%"]),
        ("A versão 3.11 saiu em 2024-10-07.", ["3.11", "2024-10-07"]),
        ("São 10 horas, 3 gatos e 2024 cães.", []),
        ("Os capítulos 1,2,3 e 4.", []),
    ],
)
def test_portuguese_amounts_are_written_in_english(text: str, expected: list[str]) -> None:
    """A point instead of a comma changes an amount by a factor of a thousand."""
    assert written(text, "pt", "en") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It is $1,250.00, due on 01/31/2025.", ["$1.250,00", "01/31/2025"]),
        ("There are 3,000,000 people.", ["3.000.000"]),
        ("It costs $19.90, up 2.5%.", ["$19,90", "2,5%"]),
        ("Use Python 3.11 now.", ["3.11"]),
    ],
)
def test_english_amounts_are_written_in_portuguese(text: str, expected: list[str]) -> None:
    """What may be a version is no amount, and stays as it is."""
    assert written(text, "en", "pt") == expected


def test_languages_whose_numbers_we_do_not_know_are_left_alone() -> None:
    """Without known marks, amounts are left to the model; dates are copied in every language."""
    assert written("1.250,00 31/01/2025", "pt", "xx") == ["31/01/2025"]
    assert written("1.250,00", "pt", "es") == ["1.250,00"]


@given(st.text("0123456789.,/-$€% aR", max_size=40))
def test_no_digit_is_ever_changed(text: str) -> None:
    """Only points and commas are exchanged."""
    for span in number_spans(text, "pt", "en"):
        marks = str.maketrans("", "", ".,")
        assert span.text.translate(marks) == text[span.start : span.end].translate(marks)


def test_numbers_that_the_translation_lacks_are_noticed() -> None:
    """The model may write a number in words, small ones often, so this is a warning and no error."""
    assert changed_numbers("Em 2024 e 2024", "In 2024")
    assert not changed_numbers("Em 2024, 10 gatos", "Ten cats in 2024")
    assert not changed_numbers("gatos", "1000 cats")
    assert not changed_numbers("Em 2024, mil gatos", "In 2024, 1000 cats")
    assert changed_numbers("Voo 47 às 18h05", "Flight 47 at 18:005")
    assert changed_numbers("10% de 200 é 20", "10% of 200 is 200 is 20")
