"""Placeholders and glossary terms through the translator: kept, tried again in pieces, or reported."""

from pathlib import Path

import numpy as np

from dragoman.service.engine.job import FinishReason
from dragoman.service.translation.contract import SegmentWarning
from tests.bundles.fakes import MODELS, VOCAB_SIZE, FakeEngines, placeholder_ids, write_bundle
from tests.clock import Clock
from tests.engine.reverse_runner import EOS
from tests.translation.asking import pass_time_from_the_third_step, translate
from tests.translation.conftest import OpenTranslator


async def test_lost_placeholders_are_tried_again_in_pieces(tmp_path: Path, open_translator: OpenTranslator) -> None:
    """Only the text between the spans is translated, so they cannot be lost."""
    write_bundle(tmp_path / "pt-en", "forget")
    translation = await translate(open_translator(tmp_path), "Veja {nome} e https://example.com agora.")
    assert translation.text == "Veja {nome} e https://example.com agora."
    assert translation.segments[0].warnings == (SegmentWarning.PLACEHOLDER_RETRIED,)


async def test_a_beam_is_tried_before_pieces(tmp_path: Path, open_translator: OpenTranslator) -> None:
    """Pieces are translated without the words around them; a hypothesis of the whole sentence reads better."""
    write_bundle(tmp_path / "pt-en", "forget")
    engines = FakeEngines(Clock())
    translator = open_translator(tmp_path, engines)
    runner = engines.runners["pt-en 1"]
    runner._log_probs = forget_unless_asked_twice
    translation = await translate(translator, "Veja {nome} e https://example.com agora.")
    assert translation.text == "Veja {nome} e https://example.com agora."
    assert translation.segments[0].warnings == ()
    assert max(runner.widths) == 4


def forget_unless_asked_twice(source: tuple[int, ...], prefix: tuple[int, ...]) -> np.ndarray:
    """Log-probabilities [vocab]: the best next token leads to a translation without placeholders; the second to one
    with all of them, which is likelier in the end."""
    placeholders = frozenset(placeholder_ids())
    scores = np.full(VOCAB_SIZE, -9.0, np.float32)
    for kind, unsure in (("copy", -0.7), ("forget", -0.5)):
        target = (*MODELS[kind]([token for token in source if token != EOS], placeholders), EOS)
        if target[: len(prefix)] == prefix:
            has_placeholder = any(token in placeholders for token in prefix)
            scores[target[min(len(prefix), len(target) - 1)]] = -0.1 if has_placeholder else unsure
    return scores


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
    """Emoji would come out as `unk`, so the text is decoded in pieces at once."""
    write_bundle(tmp_path / "pt-en", "copy", placeholders=False)
    engines = FakeEngines(Clock())
    translation = await translate(open_translator(tmp_path, engines), "O gato 😀 dorme.")
    assert translation.text == "O gato 😀 dorme."
    assert translation.segments[0].warnings == ()


async def test_glossary_terms_stand_in_the_translation(tmp_path: Path, open_translator: OpenTranslator) -> None:
    """In the case of the text; a term that maps to itself is not translated."""
    write_bundle(tmp_path / "pt-en")
    glossary = {"gato": "cat", "Serra Azul": "Serra Azul"}
    translation = await translate(open_translator(tmp_path), "Gato da Serra Azul. O gato.\nGato", glossary=glossary)
    assert translation.text == "Cat da Serra Azul. O cat.\nCat"


async def test_a_beam_gives_the_hypothesis_that_kept_them(tmp_path: Path, open_translator: OpenTranslator) -> None:
    """Another hypothesis of the beam is taken before another attempt is made."""
    write_bundle(tmp_path / "pt-en", "forget")
    translation = await translate(open_translator(tmp_path), "Veja {nome} agora.", beam_size=4)
    assert translation.text.count("{nome}") == 1


async def test_deadline_losses_are_reported(tmp_path: Path, open_translator: OpenTranslator) -> None:
    """There is no time for another attempt; the warning says what is missing."""
    write_bundle(tmp_path / "pt-en")
    clock = Clock()
    engines = FakeEngines(clock)
    translator = open_translator(tmp_path, engines, clock=clock)
    pass_time_from_the_third_step(engines, clock)
    translation = await translate(translator, "O gato dorme e depois vê {nome}.", timeout_seconds=5.0)
    segment = translation.segments[0]
    assert segment.finish_reason is FinishReason.DEADLINE
    assert segment.warnings == (SegmentWarning.PLACEHOLDER_LOST,)
