"""What becomes of text: segments, layout, blanks, over-long sentences, characters that no model was taught."""

import asyncio
import html
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from dragoman.service.engine.job import FinishReason
from dragoman.service.translation.contract import SegmentWarning, StreamEvent, Translation, TranslationOptions
from dragoman.service.translation.normalization import clean
from dragoman.service.translation.translator import Translator
from tests.bundles.fakes import tokenizer, write_bundle
from tests.translation.asking import events_of, reversed_text, streamed_text, translate
from tests.translation.conftest import OpenTranslator
from tests.translation.generated import texts

DOCUMENT = "# Título\n\n  - O gato dorme.  A casa é azul!\n  - Veja {nome} agora.\n\n\tFim\u00a0\n"


async def test_layout_comes_back_exactly(tmp_path: Path, open_translator: OpenTranslator) -> None:
    """A model that copies gives the document back, character for character."""
    write_bundle(tmp_path / "pt-en")
    translation = await translate(open_translator(tmp_path), DOCUMENT)
    assert translation.text == DOCUMENT
    sources = ["Título", "O gato dorme.", "A casa é azul!", "Veja {nome} agora.", "Fim"]
    assert [segment.source for segment in translation.segments] == sources
    assert all(segment.finish_reason is FinishReason.EOS for segment in translation.segments)


async def test_segments_are_translated_one_by_one(tmp_path: Path, open_translator: OpenTranslator) -> None:
    """Each segment by itself, in its own place, with its own score and count."""
    write_bundle(tmp_path / "pt-en", "reverse")
    translation = await translate(open_translator(tmp_path), "O gato dorme. A casa é azul.\nFim")
    first, second, third = (reversed_text(text) for text in ("O gato dorme.", "A casa é azul.", "Fim"))
    assert translation.text == f"{first} {second}\n{third}"
    segment = translation.segments[0]
    assert segment.num_tokens == len(tokenizer().encode(["O gato dorme."])) + 1
    assert segment.score < 0
    assert (segment.alternatives, segment.log_probs, segment.warnings) == ((), None, ())


@pytest.mark.parametrize("text", ["", "   ", "\n\n", "12345", "😀", "---", "https://example.com"])
async def test_text_without_words_passes_through(tmp_path: Path, open_translator: OpenTranslator, text: str) -> None:
    """Without anything to translate, nothing must be invented."""
    write_bundle(tmp_path / "pt-en", "reverse")
    translator = open_translator(tmp_path)
    translation = await translate(translator, text)
    assert (translation.text, translation.segments) == (text, ())
    assert streamed_text(await events_of(translator, text)) == text


async def test_several_texts_keep_their_places(tmp_path: Path, open_translator: OpenTranslator) -> None:
    """Answers are matched by position."""
    write_bundle(tmp_path / "pt-en")
    wanted = ["O gato dorme.", "", "A casa é azul. Fim.", "O gato dorme."]
    result = await open_translator(tmp_path).translate(wanted, "pt", "en", TranslationOptions())
    assert [translation.text for translation in result.translations] == wanted
    assert (result.model_name, result.model_version) == ("pt-en", "1")


async def test_a_sentence_too_long_for_the_model_is_split_and_says_so(
    tmp_path: Path, open_translator: OpenTranslator
) -> None:
    """Never cut off: all of it is there, in parts that are flagged."""
    write_bundle(tmp_path / "pt-en", max_source_tokens=24)
    text = "O gato dorme no jardim, " * 20 + "e a casa é azul."
    translation = await translate(open_translator(tmp_path), text)
    assert translation.text == text
    assert len(translation.segments) > 5
    assert all(segment.warnings == (SegmentWarning.SENTENCE_SPLIT,) for segment in translation.segments)


async def test_a_word_of_50000_characters_survives(tmp_path: Path, open_translator: OpenTranslator) -> None:
    """The worst kind of text: no error, nothing lost."""
    write_bundle(tmp_path / "pt-en")
    text = "a" * 50_000
    translation = await translate(open_translator(tmp_path), text)
    assert translation.text == text


async def test_more_than_32_placeholders_are_split(tmp_path: Path, open_translator: OpenTranslator) -> None:
    """There are 32 placeholder ids; a sentence with more becomes several."""
    write_bundle(tmp_path / "pt-en", max_source_tokens=256)
    text = "Veja " + " e ".join(f"{{x{number}}}" for number in range(80)) + " agora."
    translation = await translate(open_translator(tmp_path), text)
    assert translation.text == text
    assert all(SegmentWarning.SENTENCE_SPLIT in segment.warnings for segment in translation.segments)


async def test_unknown_characters_survive_and_are_reported(tmp_path: Path, open_translator: OpenTranslator) -> None:
    """Characters that the model was never taught are copied, in mid-sentence and alone."""
    write_bundle(tmp_path / "pt-en", "forget")
    translation = await translate(open_translator(tmp_path), "O gato viu 漢字 na casa.\n漢字")
    assert translation.text.count("漢字") == 2
    assert all(SegmentWarning.UNKNOWN_COPIED in segment.warnings for segment in translation.segments)
    assert SegmentWarning.PLACEHOLDER_RETRIED in translation.segments[0].warnings
    assert translation.segments[1].num_tokens == 0


async def test_sentences_need_not_be_split(tmp_path: Path, open_translator: OpenTranslator) -> None:
    """DeepL clients ask for it."""
    write_bundle(tmp_path / "pt-en")
    translation = await translate(open_translator(tmp_path), "Um gato. Uma casa.", split_sentences=False)
    assert [segment.source for segment in translation.segments] == ["Um gato. Uma casa."]


@given(texts())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_is_answered_and_nothing_between_segments_changes(
    tmp_path: Path, open_translator: OpenTranslator, text: str
) -> None:
    """Generated texts through a model that copies: whole and streamed alike, every separator in its place."""
    if not (tmp_path / "pt-en").exists():
        write_bundle(tmp_path / "pt-en")
        open_translator.shared = open_translator(tmp_path)  # type: ignore[attr-defined]
    translator: Translator = open_translator.shared  # type: ignore[attr-defined]

    async def both() -> tuple[Translation, list[StreamEvent]]:
        return await translate(translator, text), await events_of(translator, text)

    whole, events = asyncio.run(both())
    assert streamed_text(events) == whole.text
    position = 0
    for segment in whole.segments:
        position = text.index(segment.source, position) + len(segment.source)
    # English has points where Portuguese has commas; entities that are letters are written as such.
    told, sent = (" ".join(clean(html.unescape(each)).replace(",", ".").split()) for each in (whole.text, text))
    assert told == sent
