"""Headings and warnings are often all in capitals: they are read as words, and come out in capitals."""

from pathlib import Path

import pytest

from dragoman.service.translation.capitals import is_shouted, shouted, spoken
from dragoman.service.translation.spans import Span, SpanKind
from tests.bundles.fakes import write_bundle
from tests.translation.asking import translate
from tests.translation.conftest import OpenTranslator

NAME = Span(0, 6, "{nome}", SpanKind.VARIABLE)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("NÃO ABRA A PORTA!", True),
        ("BOM DIA", True),
        ("SOFÁ", True),
        ("EUA", False),
        ("S.O.S. A B C", False),
        ("Ele disse NÃO.", False),
        ("gato", False),
        ("1234", False),
        ("Ⓐ Ⓑ", False),
        ("", False),
        ("API 文档说明", False),  # only scripts with case can be shouted
        ("ȺȺȺȺ ȺȺȺȺ", False),  # small letters that take more bytes: how long a text is was judged by its own
    ],
)
def test_only_whole_text_in_capitals_is_shouted(text: str, expected: bool) -> None:
    """An abbreviation is not shouted, and a single word in capitals is left to the model."""
    assert is_shouted((text,), "pt") is expected


def test_what_is_shouted_is_read_as_a_sentence_and_written_in_capitals() -> None:
    """The first letter and the English I keep their capitals, and placeholders stay as they are."""
    assert spoken(["«OLÁ ", NAME, ", BOM DIA»"], "pt") == ["«Olá ", NAME, ", bom dia»"]
    assert spoken([NAME, " AND I, ISN'T IT"], "en") == [NAME, " And I, isn't it"]
    assert shouted(("Good ", NAME, " day")) == ("GOOD ", NAME, " DAY")


async def test_a_heading_comes_out_in_capitals(tmp_path: Path, open_translator: OpenTranslator) -> None:
    """The answer holds the source as it was sent, not as the model read it."""
    write_bundle(tmp_path / "pt-en")
    translation = await translate(open_translator(tmp_path), "O GATO {nome} DORME.\nO gato dorme.")
    assert translation.text == "O GATO {nome} DORME.\nO gato dorme."
    assert translation.segments[0].source == "O GATO {nome} DORME."
