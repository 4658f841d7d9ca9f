"""Pairs through a third language, detection, and pairs that are not served."""

from pathlib import Path

import pytest

from dragoman.service import errors
from dragoman.service.translation.contract import TranslationOptions
from tests.bundles.fakes import write_bundle
from tests.translation.asking import reversed_text, translate
from tests.translation.conftest import OpenTranslator


async def test_a_pair_without_a_bundle_goes_through_a_third_language(
    tmp_path: Path, open_translator: OpenTranslator
) -> None:
    """pt -> en -> es: both bundles work on it, placeholders and terms go all the way, and the answer says so."""
    write_bundle(tmp_path / "pt-en", "reverse")
    write_bundle(tmp_path / "en-es", "reverse", [("en", "es")], version="7")
    options = TranslationOptions(glossary={"gato": "michi"})
    wanted = ["O jardim da casa azul\n\n- Fim", "O gato viu {nome} na casa"]
    result = await open_translator(tmp_path).translate(wanted, "pt", "es", options)
    plain, spans = result.translations
    there_and_back = [reversed_text(reversed_text(part)) for part in ("O jardim da casa azul", "Fim")]
    assert plain.text == "\n\n- ".join(there_and_back)
    assert plain.pivot == "en"
    assert (spans.text.count("michi"), spans.text.count("{nome}")) == (1, 1)
    assert (result.model_name, result.model_version) == ("pt-en+en-es", "1+7")


async def test_the_source_can_be_detected(tmp_path: Path, open_translator: OpenTranslator) -> None:
    """Each text by itself; one that is in the target language already is left as it is."""
    write_bundle(tmp_path / "pt-en", "reverse")
    write_bundle(tmp_path / "en-pt", "reverse", [("en", "pt")])
    wanted = ["O menino comprou pão na padaria.", "The boy bought bread at the bakery."]
    result = await open_translator(tmp_path).translate(wanted, "auto", "en", TranslationOptions())
    portuguese, english = result.translations
    assert portuguese.text == reversed_text(wanted[0])
    assert portuguese.detected is not None
    assert (portuguese.source, portuguese.detected.language) == ("pt", "pt")
    assert (english.source, english.text, english.segments) == ("en", wanted[1], ())


async def test_detection_knows_the_served_languages_only(tmp_path: Path, open_translator: OpenTranslator) -> None:
    """A language that cannot be translated here is not answered."""
    write_bundle(tmp_path / "pt-en")
    detections = open_translator(tmp_path).detect("Où est la bibliothèque ?")
    assert {detection.language for detection in detections} == {"pt", "en"}


async def test_unknown_pairs_and_empty_catalogs_are_told_apart(tmp_path: Path, open_translator: OpenTranslator) -> None:
    """404 for what is not served, 503 for what is not there yet."""
    with pytest.raises(errors.NotReady):
        await translate(open_translator(tmp_path / "empty"), "O gato.")
    write_bundle(tmp_path / "some" / "pt-en")
    translator = open_translator(tmp_path / "some")
    for source in ("fr", "auto"):
        with pytest.raises(errors.UnknownPair):
            await translator.translate(["O gato."], source, "xx", TranslationOptions())


@pytest.mark.parametrize(
    ("source", "target"), [("PT", "EN"), ("pt-BR", "en-us"), ("Pt", "en-Latn-GB"), ("auto", "EN-US")]
)
async def test_a_language_may_be_written_otherwise(
    tmp_path: Path, open_translator: OpenTranslator, source: str, target: str
) -> None:
    """In capitals, or with a region that no bundle has; the answer and the metrics use the bundle's code."""
    write_bundle(tmp_path / "pt-en", "reverse")
    text = "O menino comprou pão na padaria."
    result = await open_translator(tmp_path).translate([text], source, target, TranslationOptions())
    assert (result.translations[0].source, result.target) == ("pt", "en")
    assert result.translations[0].text == reversed_text(text)


async def test_a_region_of_its_own_goes_first(tmp_path: Path, open_translator: OpenTranslator) -> None:
    """A bundle for pt-BR is preferred to one for pt."""
    write_bundle(tmp_path / "en-pt", "reverse", [("en", "pt")])
    write_bundle(tmp_path / "en-br", "reverse", [("en", "pt-BR")])
    translator = open_translator(tmp_path)
    for target, name in {"pt-br": "en-br", "pt-PT": "en-pt", "PT": "en-pt"}.items():
        result = await translator.translate(["The boy bought bread."], "en", target, TranslationOptions())
        assert result.model_name == name
