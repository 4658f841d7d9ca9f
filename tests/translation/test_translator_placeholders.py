"""Placeholders and glossary terms through the translator: kept, tried again in pieces, or reported."""

from pathlib import Path

from dragoman.service.engine.job import FinishReason
from dragoman.service.translation.contract import SegmentWarning
from tests.bundles.fakes import FakeEngines, write_bundle
from tests.clock import Clock
from tests.translation.asking import pass_time_from_the_third_step, translate
from tests.translation.conftest import OpenTranslator


async def test_lost_placeholders_are_tried_again_in_pieces(tmp_path: Path, open_translator: OpenTranslator) -> None:
    """The text between them is translated by itself; the spans cannot be lost then."""
    write_bundle(tmp_path / "pt-en", "forget")
    translation = await translate(open_translator(tmp_path), "Veja {nome} e https://example.com agora.")
    assert translation.text == "Veja {nome} e https://example.com agora."
    assert translation.segments[0].warnings == (SegmentWarning.PLACEHOLDER_RETRIED,)


async def test_a_bundle_without_placeholders_keeps_spans_in_its_text(
    tmp_path: Path, open_translator: OpenTranslator
) -> None:
    """An imported model that copies addresses needs no second attempt; one that breaks them gets it."""
    write_bundle(tmp_path / "copies" / "pt-en", placeholders=False)
    write_bundle(tmp_path / "breaks" / "pt-en", "reverse", placeholders=False)
    text = "Veja https://example.com/a agora."
    copied = await translate(open_translator(tmp_path / "copies"), text)
    assert (copied.text, copied.segments[0].warnings) == (text, ())
    broken = await translate(open_translator(tmp_path / "breaks"), text)
    assert "https://example.com/a" in broken.text
    assert broken.segments[0].warnings == (SegmentWarning.PLACEHOLDER_RETRIED,)


async def test_a_bundle_without_placeholders_never_sees_what_it_cannot_read(
    tmp_path: Path, open_translator: OpenTranslator
) -> None:
    """Emoji would come out as `unk`; the pieces around them go alone, at once."""
    write_bundle(tmp_path / "pt-en", "copy", placeholders=False)
    engines = FakeEngines(Clock())
    translation = await translate(open_translator(tmp_path, engines), "O gato 😀 dorme.")
    assert translation.text == "O gato 😀 dorme."
    assert translation.segments[0].warnings == ()


async def test_glossary_terms_stand_in_the_translation(tmp_path: Path, open_translator: OpenTranslator) -> None:
    """Term for term, in the case of the text; a term for itself is not translated."""
    write_bundle(tmp_path / "pt-en")
    glossary = {"gato": "cat", "Serra Azul": "Serra Azul"}
    translation = await translate(open_translator(tmp_path), "Gato da Serra Azul. O gato.\nGato", glossary=glossary)
    assert translation.text == "Cat da Serra Azul. O cat.\nCat"


async def test_a_beam_gives_the_hypothesis_that_kept_them(tmp_path: Path, open_translator: OpenTranslator) -> None:
    """Before a second attempt, the second hypothesis."""
    write_bundle(tmp_path / "pt-en", "forget")
    translation = await translate(open_translator(tmp_path), "Veja {nome} agora.", beam_size=4)
    assert translation.text.count("{nome}") == 1


async def test_deadline_losses_are_reported(tmp_path: Path, open_translator: OpenTranslator) -> None:
    """There is no time for a second attempt; the warning says what is missing."""
    write_bundle(tmp_path / "pt-en")
    clock = Clock()
    engines = FakeEngines(clock)
    translator = open_translator(tmp_path, engines, clock=clock)
    pass_time_from_the_third_step(engines, clock)
    translation = await translate(translator, "O gato dorme e depois vê {nome}.", timeout_seconds=5.0)
    segment = translation.segments[0]
    assert segment.finish_reason is FinishReason.DEADLINE
    assert segment.warnings == (SegmentWarning.PLACEHOLDER_LOST,)
