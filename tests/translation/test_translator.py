"""From text to text, through real tokenizers and a real engine; only the network is a fake that copies or reverses."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from service import errors
from service.engine.job import FinishReason
from service.engine.scheduler import EngineSettings
from service.translation.cache import SegmentCache
from service.translation.contract import (
    DoneEvent,
    SegmentEvent,
    SegmentWarning,
    StreamEvent,
    TokenEvent,
    Translation,
    TranslationLimits,
    TranslationOptions,
    TranslationResult,
)
from service.translation.language import Detector
from service.translation.normalization import clean
from service.translation.translator import Translator
from tests.bundles.fakes import FakeEngines, open_catalog, tokenizer, write_bundle
from tests.translation.conftest import Clock, OpenTranslator
from tests.translation.generated import texts

DOCUMENT = "# Título\n\n  - O gato dorme.  A casa é azul!\n  - Veja {nome} agora.\n\n\tFim\u00a0\n"


async def translate(translator: Translator, text: str, **options: Any) -> Translation:
    result = await translator.translate([text], "pt", "en", TranslationOptions(**options))
    return result.translations[0]


async def events_of(translator: Translator, text: str, **options: Any) -> list[StreamEvent]:
    return [event async for event in translator.stream(text, "pt", "en", TranslationOptions(**options))]


def streamed_text(events: list[StreamEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TokenEvent))


def result_of(events: list[StreamEvent]) -> TranslationResult:
    assert isinstance(events[-1], DoneEvent)
    return events[-1].result


def reversed_text(text: str) -> str:
    """What a model that reverses tokens says."""
    return tokenizer().decode(tokenizer().encode([text])[::-1])


class TestText:
    async def test_layout_comes_back_exactly(self, tmp_path: Path, open_translator: OpenTranslator) -> None:
        """A model that copies gives the document back, character for character."""
        write_bundle(tmp_path / "pt-en")
        translation = await translate(open_translator(tmp_path), DOCUMENT)
        assert translation.text == DOCUMENT
        sources = ["Título", "O gato dorme.", "A casa é azul!", "Veja {nome} agora.", "Fim"]
        assert [segment.source for segment in translation.segments] == sources
        assert all(segment.finish_reason is FinishReason.EOS for segment in translation.segments)

    async def test_segments_are_translated_one_by_one(self, tmp_path: Path, open_translator: OpenTranslator) -> None:
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
    async def test_text_without_words_passes_through(
        self, tmp_path: Path, open_translator: OpenTranslator, text: str
    ) -> None:
        """Nothing to translate is no reason to invent something."""
        write_bundle(tmp_path / "pt-en", "reverse")
        translator = open_translator(tmp_path)
        translation = await translate(translator, text)
        assert (translation.text, translation.segments) == (text, ())
        assert streamed_text(await events_of(translator, text)) == text

    async def test_several_texts_keep_their_places(self, tmp_path: Path, open_translator: OpenTranslator) -> None:
        """Answers are matched by position."""
        write_bundle(tmp_path / "pt-en")
        wanted = ["O gato dorme.", "", "A casa é azul. Fim.", "O gato dorme."]
        result = await open_translator(tmp_path).translate(wanted, "pt", "en", TranslationOptions())
        assert [translation.text for translation in result.translations] == wanted
        assert (result.model_name, result.model_version) == ("pt-en", "1")

    async def test_a_sentence_too_long_for_the_model_is_split_and_says_so(
        self, tmp_path: Path, open_translator: OpenTranslator
    ) -> None:
        """Never cut off: all of it is there, in parts that are flagged."""
        write_bundle(tmp_path / "pt-en", max_source_tokens=24)
        text = "O gato dorme no jardim, " * 20 + "e a casa é azul."
        translation = await translate(open_translator(tmp_path), text)
        assert translation.text == text
        assert len(translation.segments) > 5
        assert all(segment.warnings == (SegmentWarning.SENTENCE_SPLIT,) for segment in translation.segments)

    async def test_a_word_of_50000_characters_survives(self, tmp_path: Path, open_translator: OpenTranslator) -> None:
        """The worst text of the issue list: no error, nothing lost."""
        write_bundle(tmp_path / "pt-en")
        text = "a" * 50_000
        translation = await translate(open_translator(tmp_path), text)
        assert translation.text == text

    async def test_more_than_32_placeholders_are_split(self, tmp_path: Path, open_translator: OpenTranslator) -> None:
        """There are 32 placeholder ids; a sentence with more becomes several."""
        write_bundle(tmp_path / "pt-en", max_source_tokens=256)
        text = "Veja " + " e ".join(f"{{x{number}}}" for number in range(80)) + " agora."
        translation = await translate(open_translator(tmp_path), text)
        assert translation.text == text
        assert all(SegmentWarning.SENTENCE_SPLIT in segment.warnings for segment in translation.segments)

    async def test_unknown_characters_survive_and_are_reported(
        self, tmp_path: Path, open_translator: OpenTranslator
    ) -> None:
        """Characters that the model was never taught are copied, in mid-sentence and alone."""
        write_bundle(tmp_path / "pt-en", "forget")
        translation = await translate(open_translator(tmp_path), "O gato viu 漢字 na casa.\n漢字")
        assert translation.text.count("漢字") == 2
        assert all(SegmentWarning.UNKNOWN_COPIED in segment.warnings for segment in translation.segments)
        assert SegmentWarning.PLACEHOLDER_RETRIED in translation.segments[0].warnings
        assert translation.segments[1].num_tokens == 0

    async def test_sentences_need_not_be_split(self, tmp_path: Path, open_translator: OpenTranslator) -> None:
        """DeepL clients ask for it."""
        write_bundle(tmp_path / "pt-en")
        translation = await translate(open_translator(tmp_path), "Um gato. Uma casa.", split_sentences=False)
        assert [segment.source for segment in translation.segments] == ["Um gato. Uma casa."]


class TestPlaceholders:
    async def test_lost_placeholders_are_tried_again_in_pieces(
        self, tmp_path: Path, open_translator: OpenTranslator
    ) -> None:
        """The text between them is translated by itself; the spans cannot be lost then."""
        write_bundle(tmp_path / "pt-en", "forget")
        translation = await translate(open_translator(tmp_path), "Veja {nome} e https://example.com agora.")
        assert translation.text == "Veja {nome} e https://example.com agora."
        assert translation.segments[0].warnings == (SegmentWarning.PLACEHOLDER_RETRIED,)

    async def test_a_bundle_without_placeholders_keeps_spans_in_its_text(
        self, tmp_path: Path, open_translator: OpenTranslator
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
        self, tmp_path: Path, open_translator: OpenTranslator
    ) -> None:
        """Emoji would come out as `unk`; the pieces around them go alone, at once."""
        write_bundle(tmp_path / "pt-en", "copy", placeholders=False)
        engines = FakeEngines(Clock())
        translation = await translate(open_translator(tmp_path, engines), "O gato 😀 dorme.")
        assert translation.text == "O gato 😀 dorme."
        assert translation.segments[0].warnings == ()

    async def test_glossary_terms_stand_in_the_translation(
        self, tmp_path: Path, open_translator: OpenTranslator
    ) -> None:
        """Term for term, in the case of the text; a term for itself is not translated."""
        write_bundle(tmp_path / "pt-en")
        glossary = {"gato": "cat", "Serra Azul": "Serra Azul"}
        translation = await translate(open_translator(tmp_path), "Gato da Serra Azul. O gato.\nGato", glossary=glossary)
        assert translation.text == "Cat da Serra Azul. O cat.\nCat"

    async def test_a_beam_gives_the_hypothesis_that_kept_them(
        self, tmp_path: Path, open_translator: OpenTranslator
    ) -> None:
        """Before a second attempt, the second hypothesis."""
        write_bundle(tmp_path / "pt-en", "forget")
        translation = await translate(open_translator(tmp_path), "Veja {nome} agora.", beam_size=4)
        assert translation.text.count("{nome}") == 1

    async def test_deadline_losses_are_reported(self, tmp_path: Path, open_translator: OpenTranslator) -> None:
        """There is no time for a second attempt; the warning says what is missing."""
        write_bundle(tmp_path / "pt-en")
        clock = Clock()
        engines = FakeEngines(clock)
        translator = open_translator(tmp_path, engines, clock=clock)
        runner = engines.runners["pt-en 1"]
        began = runner.num_steps
        runner.before_step = lambda step: setattr(clock, "now", clock.now + (10 if step >= began + 2 else 0))
        translation = await translate(translator, "O gato dorme e depois vê {nome}.", timeout_seconds=5.0)
        segment = translation.segments[0]
        assert segment.finish_reason is FinishReason.DEADLINE
        assert segment.warnings == (SegmentWarning.PLACEHOLDER_LOST,)


class TestOptions:
    async def test_n_best_gives_the_other_hypotheses(self, tmp_path: Path, open_translator: OpenTranslator) -> None:
        """Best first; the best itself is the text."""
        write_bundle(tmp_path / "pt-en")
        segment = (await translate(open_translator(tmp_path), "O gato dorme.", beam_size=4, n_best=3)).segments[0]
        assert len(segment.alternatives) == 2
        scores = [segment.score, *(each.score for each in segment.alternatives)]
        assert scores == sorted(scores, reverse=True)

    async def test_log_probs_are_one_per_token(self, tmp_path: Path, open_translator: OpenTranslator) -> None:
        """With the end of sentence; a placeholder is shown by what it stands for."""
        write_bundle(tmp_path / "pt-en")
        segment = (await translate(open_translator(tmp_path), "O gato vê {nome}.", log_probs=True)).segments[0]
        assert segment.log_probs is not None
        assert len(segment.log_probs) == segment.num_tokens
        assert {"{nome}", "</s>"} <= {each.token for each in segment.log_probs}
        assert all(each.log_prob == pytest.approx(-0.25) for each in segment.log_probs)

    async def test_a_target_prefix_begins_the_first_translated_segment(
        self, tmp_path: Path, open_translator: OpenTranslator
    ) -> None:
        """Of each text; blanks around it do not count."""
        write_bundle(tmp_path / "pt-en")
        options = TranslationOptions(target_prefix=" A casa ")
        result = await open_translator(tmp_path).translate(
            ["- 123\n- O gato dorme. Fim.", "A casa é azul."], "pt", "en", options
        )
        first, second = result.translations
        assert first.text.startswith("- 123\n- A casa")
        assert first.segments[1].text == "Fim."
        assert second.text == "A casa é azul."

    async def test_a_prefix_may_quote_a_placeholder(self, tmp_path: Path, open_translator: OpenTranslator) -> None:
        """It is the same placeholder then, not a second copy in text."""
        write_bundle(tmp_path / "pt-en")
        translation = await translate(
            open_translator(tmp_path), "Veja {nome} agora.", target_prefix="Veja {nome}", strict=True
        )
        assert translation.text == "Veja {nome} agora."
        assert translation.segments[0].warnings == ()

    async def test_a_prefix_that_quotes_a_lost_placeholder_does_not_double_it(
        self, tmp_path: Path, open_translator: OpenTranslator
    ) -> None:
        """In the second attempt the placeholder stands by itself, and the prefix goes up to it."""
        write_bundle(tmp_path / "pt-en", "double")
        text = "Veja {nome} e {outro} agora."
        translation = await translate(open_translator(tmp_path), text, target_prefix="Veja {nome}")
        assert translation.text == text
        assert translation.segments[0].warnings == (SegmentWarning.PLACEHOLDER_RETRIED,)

    async def test_a_prefix_that_goes_on_in_its_last_word_is_reported(
        self, tmp_path: Path, open_translator: OpenTranslator
    ) -> None:
        """The prefix should end at a word boundary; the caller learns where it did not."""
        write_bundle(tmp_path / "pt-en")
        ids = tokenizer().encode(["extraordinariamente"])
        part = tokenizer().decode(ids[:1])
        segment = (await translate(open_translator(tmp_path), "extraordinariamente", target_prefix=part)).segments[0]
        continued = segment.text.startswith(part) and segment.text[len(part) : len(part) + 1].isalnum()
        assert (SegmentWarning.PREFIX_CONTINUED in segment.warnings) == continued

    @pytest.mark.parametrize(
        ("options", "error"),
        [
            ({"beam_size": 0}, errors.InvalidRequest),
            ({"beam_size": 9}, errors.InvalidRequest),
            ({"beam_size": 2, "n_best": 3}, errors.InvalidRequest),
            ({"max_new_tokens": 0}, errors.InvalidRequest),
            ({"length_penalty": float("nan")}, errors.InvalidRequest),
            ({"timeout_seconds": 0.0}, errors.InvalidRequest),
            ({"glossary": {" ": "x"}}, errors.InvalidRequest),
            ({"glossary": {"a": "\ud800"}}, errors.InvalidRequest),
            ({"glossary": {"a": "1", "b": "2", "c": "3"}}, errors.TooLarge),
            ({"target_prefix": "A casa é azul e o gato dorme", "max_new_tokens": 2}, errors.InvalidRequest),
        ],
    )
    async def test_what_cannot_be_done_is_refused_before_any_work(
        self, tmp_path: Path, open_translator: OpenTranslator, options: dict[str, Any], error: type[Exception]
    ) -> None:
        """Whichever route it came by."""
        write_bundle(tmp_path / "pt-en")
        engines = FakeEngines(Clock())
        translator = open_translator(tmp_path, engines, TranslationLimits(max_glossary_terms=2))
        steps = engines.runners["pt-en 1"].num_steps
        with pytest.raises(error):
            await translate(translator, "O gato.", **options)
        assert engines.runners["pt-en 1"].num_steps == steps

    async def test_size_limits_are_413_and_bad_unicode_is_422(
        self, tmp_path: Path, open_translator: OpenTranslator
    ) -> None:
        """The message never holds any of the text."""
        write_bundle(tmp_path / "pt-en")
        translator = open_translator(tmp_path, limits=TranslationLimits(max_texts=2, max_characters=10))
        for given_texts, error in (
            (["a"] * 3, errors.TooLarge),
            (["segredo" * 2], errors.TooLarge),
            (["\ud800"], errors.InvalidRequest),
            ([], errors.InvalidRequest),
        ):
            with pytest.raises(error) as raised:
                await translator.translate(given_texts, "pt", "en", TranslationOptions())
            assert "segredo" not in raised.value.detail


class TestLanguages:
    async def test_a_pair_without_a_bundle_goes_through_a_third_language(
        self, tmp_path: Path, open_translator: OpenTranslator
    ) -> None:
        """pt -> en -> es: both bundles work on it, placeholders and terms go all the way, and the answer says so."""
        write_bundle(tmp_path / "pt-en", "reverse")
        write_bundle(tmp_path / "en-es", "reverse", [("en", "es")], version="7")
        options = TranslationOptions(glossary={"gato": "michi"})
        wanted = ["O jardim da casa azul\n\n- Fim", "O gato viu {nome} na casa"]
        result = await open_translator(tmp_path).translate(wanted, "pt", "es", options)
        plain, spans = result.translations
        assert plain.text == reversed_text(reversed_text("O jardim da casa azul")) + "\n\n- Fim"
        assert plain.pivot == "en"
        assert (spans.text.count("michi"), spans.text.count("{nome}")) == (1, 1)
        assert (result.model_name, result.model_version) == ("pt-en+en-es", "1+7")

    async def test_the_source_can_be_detected(self, tmp_path: Path, open_translator: OpenTranslator) -> None:
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

    async def test_detection_knows_the_served_languages_only(
        self, tmp_path: Path, open_translator: OpenTranslator
    ) -> None:
        """Nobody is told of a language that cannot be translated here."""
        write_bundle(tmp_path / "pt-en")
        detections = open_translator(tmp_path).detect("Où est la bibliothèque ?")
        assert {detection.language for detection in detections} == {"pt", "en"}

    async def test_unknown_pairs_and_empty_catalogs_are_told_apart(
        self, tmp_path: Path, open_translator: OpenTranslator
    ) -> None:
        """404 for what is not served, 503 for what is not there yet."""
        with pytest.raises(errors.NotReady):
            await translate(open_translator(tmp_path / "empty"), "O gato.")
        write_bundle(tmp_path / "some" / "pt-en")
        translator = open_translator(tmp_path / "some")
        for source in ("fr", "auto"):
            with pytest.raises(errors.UnknownPair):
                await translator.translate(["O gato."], source, "xx", TranslationOptions())


class TestReload:
    async def test_requests_go_on_while_a_bundle_is_replaced(self, tmp_path: Path) -> None:
        """No error, no answer from a stopped engine or another version's cache; both versions are seen."""
        write_bundle(tmp_path / "pt-en", "copy")
        catalog = open_catalog(tmp_path, engines=FakeEngines())
        catalog.reload()
        cache = SegmentCache(1 << 20, time.monotonic)
        translator = Translator(catalog, Detector(), cache, TranslationLimits())
        text = "O gato dorme no jardim."
        expected = {"1": text, "2": reversed_text(text)}
        seen: set[str] = set()
        begun = asyncio.Event()

        async def client() -> None:
            while "2" not in seen:
                result = await translator.translate([text], "pt", "en", TranslationOptions())
                assert result.translations[0].text == expected[result.model_version]
                seen.add(result.model_version)
                begun.set()

        clients = [asyncio.create_task(client()) for _ in range(8)]
        first = asyncio.create_task(begun.wait())
        await asyncio.wait([first, *clients], return_when=asyncio.FIRST_COMPLETED)
        write_bundle(tmp_path / "pt-en", "reverse", version="2")
        report = await asyncio.to_thread(catalog.reload)
        assert report.loaded == ("pt-en 2",)
        await asyncio.gather(*clients)
        assert seen == {"1", "2"}
        await asyncio.to_thread(catalog.close)


class TestEndings:
    @pytest.mark.parametrize(("kind", "reason"), [("loop", "repetition"), ("long", "length")])
    async def test_every_segment_says_how_it_ended_and_strict_refuses(
        self, tmp_path: Path, open_translator: OpenTranslator, kind: str, reason: str
    ) -> None:
        """Text that is not whole is never passed off as whole."""
        write_bundle(tmp_path / "pt-en", kind)
        translator = open_translator(tmp_path)
        text = "O gato dorme no jardim."
        assert (await translate(translator, text)).segments[0].finish_reason == reason
        with pytest.raises(errors.StrictRefusal):
            await translate(translator, text, strict=True)
        assert streamed_text(await events_of(translator, text)) == (await translate(translator, text)).text

    async def test_a_model_that_says_nothing_is_reported(self, tmp_path: Path, open_translator: OpenTranslator) -> None:
        """An empty translation that ended well is still a loss."""
        write_bundle(tmp_path / "pt-en", "mute")
        translator = open_translator(tmp_path)
        segment = (await translate(translator, "O gato dorme no jardim.")).segments[0]
        assert (segment.text, segment.warnings) == ("", (SegmentWarning.EMPTY_TRANSLATION,))
        with pytest.raises(errors.StrictRefusal):
            await translate(translator, "O gato dorme no jardim.", strict=True)

    async def test_a_deadline_in_the_queue_is_504(self, tmp_path: Path, open_translator: OpenTranslator) -> None:
        """Never executed, and said so."""
        write_bundle(tmp_path / "pt-en")
        clock = Clock()
        engines = FakeEngines(clock)
        translator = open_translator(tmp_path, engines, clock=clock)
        clock.tick = 1.0
        steps = engines.runners["pt-en 1"].num_steps
        with pytest.raises(errors.DeadlineExceeded):
            await translate(translator, "O gato dorme.", timeout_seconds=0.5)
        assert engines.runners["pt-en 1"].num_steps == steps

    @pytest.mark.parametrize("strict", [False, True])
    async def test_a_deadline_in_mid_decode_gives_the_part_that_is_there(
        self, tmp_path: Path, open_translator: OpenTranslator, strict: bool
    ) -> None:
        """Partial and flagged; with strict, 504."""
        write_bundle(tmp_path / "pt-en")
        clock = Clock()
        engines = FakeEngines(clock)
        translator = open_translator(tmp_path, engines, clock=clock)
        runner = engines.runners["pt-en 1"]
        began = runner.num_steps
        runner.before_step = lambda step: setattr(clock, "now", clock.now + (10 if step >= began + 2 else 0))
        text = "O gato dorme no jardim da casa azul."
        work = translate(translator, text, timeout_seconds=5.0, strict=strict)
        if strict:
            with pytest.raises(errors.DeadlineExceeded):
                await work
        else:
            segment = (await work).segments[0]
            assert segment.finish_reason is FinishReason.DEADLINE
            assert segment.text
            assert text.startswith(segment.text)

    async def test_a_full_queue_is_429_with_a_time_to_come_back(
        self, tmp_path: Path, open_translator: OpenTranslator
    ) -> None:
        """All or nothing: no segment of a refused request is decoded."""
        write_bundle(tmp_path / "pt-en")
        clock = Clock()
        engines = FakeEngines(clock, EngineSettings(max_queued_tokens=40), max_rows=1)
        translator = open_translator(tmp_path, engines, clock=clock)
        hold = Hold(engines)
        running = asyncio.create_task(translate(translator, "O gato dorme. A casa é azul. O jardim é grande."))
        await hold.reached()
        with pytest.raises(errors.QueueFull) as raised:
            await translate(translator, "Uma frase. Outra frase. Mais uma frase. E ainda outra frase.")
        assert raised.value.retry_after_seconds is not None
        hold.release()
        assert (await running).text == "O gato dorme. A casa é azul. O jardim é grande."

    async def test_cancelling_the_task_frees_its_rows(self, tmp_path: Path, open_translator: OpenTranslator) -> None:
        """A client that leaves costs nobody anything."""
        write_bundle(tmp_path / "pt-en")
        clock = Clock()
        engines = FakeEngines(clock)
        translator = open_translator(tmp_path, engines, clock=clock)
        hold = Hold(engines)
        running = asyncio.create_task(translate(translator, "O gato dorme. A casa é azul."))
        await hold.reached()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        hold.release()
        assert (await translate(translator, "Fim")).text == "Fim"
        snapshot = engines.engines["pt-en 1"].snapshot()
        assert (snapshot.active_rows, snapshot.queued_segments) == (0, 0)

    async def test_a_failing_runner_is_our_fault_and_not_the_end(
        self, tmp_path: Path, open_translator: OpenTranslator
    ) -> None:
        """500 without the cause in it; the next request is answered."""
        write_bundle(tmp_path / "pt-en")
        engines = FakeEngines(Clock())
        translator = open_translator(tmp_path, engines)
        engines.runners["pt-en 1"].fail_at.add("step")
        with pytest.raises(errors.InternalError) as raised:
            await translate(translator, "O gato dorme.")
        assert "step" not in raised.value.detail
        assert (await translate(translator, "O gato dorme.")).text == "O gato dorme."

    async def test_a_stopped_engine_is_503(self, tmp_path: Path, open_translator: OpenTranslator) -> None:
        """The process is going down: ask another."""
        write_bundle(tmp_path / "pt-en")
        engines = FakeEngines(Clock())
        translator = open_translator(tmp_path, engines)
        engines.engines["pt-en 1"].stop()
        with pytest.raises(errors.Draining):
            await translate(translator, "O gato dorme.")


class TestStream:
    @pytest.mark.parametrize("kind", ["copy", "reverse", "forget"])
    @pytest.mark.parametrize("options", [{}, {"beam_size": 3, "n_best": 2}, {"target_prefix": "A casa"}])
    async def test_the_stream_joined_is_the_text(
        self, tmp_path: Path, open_translator: OpenTranslator, kind: str, options: dict[str, Any]
    ) -> None:
        """And its segments and its end are those of the answer that is not streamed."""
        write_bundle(tmp_path / "pt-en", kind)
        translator = open_translator(tmp_path)
        text = "  O gato dorme.\n\n- Veja {nome} e a casa azul.\nFim. \n"
        events = await events_of(translator, text, **options)
        whole = await translate(translator, text, **options)
        assert streamed_text(events) == whole.text == result_of(events).translations[0].text
        segments = [event.segment for event in events if isinstance(event, SegmentEvent)]
        assert tuple(segments) == whole.segments

    async def test_events_come_in_the_order_of_the_text(self, tmp_path: Path, open_translator: OpenTranslator) -> None:
        """Segments decode side by side; later ones wait for their turn to be told."""
        write_bundle(tmp_path / "pt-en")
        events = await events_of(open_translator(tmp_path), "O jardim da casa é muito grande. Fim. O gato dorme.")
        order = [event.segment if isinstance(event, TokenEvent) else event.index for event in events[:-1]]  # type: ignore[union-attr]
        assert order == sorted(order)

    async def test_greedy_tokens_come_word_by_word(self, tmp_path: Path, open_translator: OpenTranslator) -> None:
        """More than one piece per segment, each ending between words; with a beam whole segments."""
        write_bundle(tmp_path / "pt-en")
        translator = open_translator(tmp_path)
        text = "O gato dorme no jardim."
        pieces = [event.text for event in await events_of(translator, text) if isinstance(event, TokenEvent)]
        assert pieces == ["O", " gato", " dorme", " no", " jardim."]
        beam = [event.text for event in await events_of(translator, text, beam_size=2) if isinstance(event, TokenEvent)]
        assert beam == [text]

    async def test_the_last_hop_streams(self, tmp_path: Path, open_translator: OpenTranslator) -> None:
        """Through a third language too, words come as they are decoded."""
        write_bundle(tmp_path / "pt-en")
        write_bundle(tmp_path / "en-es", pairs=[("en", "es")])
        translator = open_translator(tmp_path)
        events = [event async for event in translator.stream("O gato dorme.", "pt", "es", TranslationOptions())]
        assert [event.text for event in events if isinstance(event, TokenEvent)] == ["O", " gato", " dorme."]
        assert result_of(events).translations[0].pivot == "en"

    async def test_refusals_come_before_the_first_event(self, tmp_path: Path, open_translator: OpenTranslator) -> None:
        """So that HTTP can still answer with a status."""
        write_bundle(tmp_path / "pt-en")
        with pytest.raises(errors.UnknownPair):
            await anext(open_translator(tmp_path).stream("\n\nO gato.", "fr", "en", TranslationOptions()))

    async def test_closing_a_stream_frees_its_rows(self, tmp_path: Path, open_translator: OpenTranslator) -> None:
        """Whoever stops reading stops the work."""
        write_bundle(tmp_path / "pt-en")
        engines = FakeEngines(Clock())
        translator = open_translator(tmp_path, engines)
        stream = translator.stream("O gato dorme no jardim da casa. Fim.", "pt", "en", TranslationOptions())
        await anext(stream)
        await stream.aclose()
        assert (await translate(translator, "Fim")).text == "Fim"
        assert engines.engines["pt-en 1"].snapshot().active_rows == 0

    async def test_identical_streams_at_one_time_share_a_decode(
        self, tmp_path: Path, open_translator: OpenTranslator
    ) -> None:
        """Each of them says all of it, whenever it came."""
        write_bundle(tmp_path / "pt-en")
        engines = FakeEngines(Clock())
        translator = open_translator(tmp_path, engines)
        text = "O gato dorme no jardim da casa azul."
        added = len(engines.runners["pt-en 1"].added)
        hold = Hold(engines)
        streams = [asyncio.create_task(events_of(translator, text)) for _ in range(3)]
        await hold.reached()
        late = asyncio.create_task(events_of(translator, text))
        await asyncio.sleep(0)
        hold.release()
        assert {streamed_text(await stream) for stream in (*streams, late)} == {text}
        assert len(engines.runners["pt-en 1"].added) == added + 1


class Hold:
    """Stops the runner before its next step until released: a moment in which to do things."""

    def __init__(self, engines: FakeEngines, label: str = "pt-en 1") -> None:
        import threading

        self._reached, self._released = threading.Event(), threading.Event()
        engines.runners[label].before_step = self._wait

    def _wait(self, step: int) -> None:
        self._reached.set()
        assert self._released.wait(30)

    async def reached(self) -> None:
        assert await asyncio.to_thread(self._reached.wait, 30)

    def release(self) -> None:
        self._released.set()


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
    assert " ".join(clean(whole.text).split()) == " ".join(clean(text).split())
