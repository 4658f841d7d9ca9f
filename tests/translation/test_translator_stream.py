"""The same text as it is decoded: in order, word by word, and equal to the whole in the end."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from dragoman.service import errors
from dragoman.service.translation.contract import SegmentEvent, TokenEvent, TranslationLimits, TranslationOptions
from tests.bundles.fakes import FakeEngines, write_bundle
from tests.clock import Clock
from tests.translation.asking import Hold, events_of, result_of, streamed_text, translate
from tests.translation.conftest import OpenTranslator


@pytest.mark.parametrize("kind", ["copy", "reverse", "forget"])
@pytest.mark.parametrize("options", [{}, {"beam_size": 3, "n_best": 2}, {"target_prefix": "A casa"}])
async def test_the_stream_joined_is_the_text(
    tmp_path: Path, open_translator: OpenTranslator, kind: str, options: dict[str, Any]
) -> None:
    """Segments and result are those of the answer that is not streamed."""
    write_bundle(tmp_path / "pt-en", kind)
    translator = open_translator(tmp_path)
    text = "  O gato dorme.\n\n- Veja {nome} e a casa azul.\nFim. \n"
    events = await events_of(translator, text, **options)
    whole = await translate(translator, text, **options)
    assert streamed_text(events) == whole.text == result_of(events).translations[0].text
    segments = [event.segment for event in events if isinstance(event, SegmentEvent)]
    assert tuple(segments) == whole.segments


async def test_events_come_in_the_order_of_the_text(tmp_path: Path, open_translator: OpenTranslator) -> None:
    """Segments are decoded side by side, but their events come in order."""
    write_bundle(tmp_path / "pt-en")
    events = await events_of(open_translator(tmp_path), "O jardim da casa é muito grande. Fim. O gato dorme.")
    order = [event.segment if isinstance(event, TokenEvent) else event.index for event in events[:-1]]  # type: ignore[union-attr]
    assert order == sorted(order)


async def test_greedy_tokens_come_word_by_word(tmp_path: Path, open_translator: OpenTranslator) -> None:
    """More than one piece per segment, each ending between words; with a beam whole segments."""
    write_bundle(tmp_path / "pt-en")
    translator = open_translator(tmp_path)
    text = "O gato dorme no jardim."
    pieces = [event.text for event in await events_of(translator, text) if isinstance(event, TokenEvent)]
    assert pieces == ["O", " gato", " dorme", " no", " jardim."]
    beam = [event.text for event in await events_of(translator, text, beam_size=2) if isinstance(event, TokenEvent)]
    assert beam == [text]


async def test_a_bundle_that_recommends_a_beam_gets_it(tmp_path: Path, open_translator: OpenTranslator) -> None:
    """Unless the request says otherwise; with a beam whole segments come."""
    write_bundle(tmp_path / "pt-en", default_beam_size=2)
    engines = FakeEngines()
    translator = open_translator(tmp_path, engines)
    text, widths = "O gato dorme no jardim.", engines.runners["pt-en 1"].widths
    for options, num_pieces, num_rows in (({}, 1, 2), ({"beam_size": 1}, 5, 1)):
        widths.clear()
        events = await events_of(translator, text, **options)
        assert sum(isinstance(event, TokenEvent) for event in events) == num_pieces
        assert max(widths) == num_rows


async def test_a_bundle_recommends_no_more_than_the_server_allows(
    tmp_path: Path, open_translator: OpenTranslator
) -> None:
    """A bundle's recommendation must not exceed the operator's limit, and must not be refused because of it."""
    write_bundle(tmp_path / "pt-en", default_beam_size=6)
    engines = FakeEngines()
    translator = open_translator(tmp_path, engines, TranslationLimits(max_beam_size=3))
    await events_of(translator, "O gato dorme no jardim.")
    assert max(engines.runners["pt-en 1"].widths) == 3


async def test_the_last_hop_streams(tmp_path: Path, open_translator: OpenTranslator) -> None:
    """Through a third language too, words come as they are decoded."""
    write_bundle(tmp_path / "pt-en")
    write_bundle(tmp_path / "en-es", pairs=[("en", "es")])
    translator = open_translator(tmp_path)
    events = [event async for event in translator.stream("O gato dorme.", "pt", "es", TranslationOptions())]
    assert [event.text for event in events if isinstance(event, TokenEvent)] == ["O", " gato", " dorme."]
    assert result_of(events).translations[0].pivot == "en"


async def test_refusals_come_before_the_first_event(tmp_path: Path, open_translator: OpenTranslator) -> None:
    """HTTP can still answer with a status then."""
    write_bundle(tmp_path / "pt-en")
    with pytest.raises(errors.UnknownPair):
        await anext(open_translator(tmp_path).stream("\n\nO gato.", "fr", "en", TranslationOptions()))


async def test_closing_a_stream_frees_its_rows(tmp_path: Path, open_translator: OpenTranslator) -> None:
    """When the reader stops, the work stops."""
    write_bundle(tmp_path / "pt-en")
    engines = FakeEngines(Clock())
    translator = open_translator(tmp_path, engines)
    stream = translator.stream("O gato dorme no jardim da casa. Fim.", "pt", "en", TranslationOptions())
    await anext(stream)
    await stream.aclose()
    assert (await translate(translator, "Fim")).text == "Fim"
    assert engines.engines["pt-en 1"].snapshot().active_rows == 0


async def test_identical_streams_at_one_time_share_a_decode(tmp_path: Path, open_translator: OpenTranslator) -> None:
    """Each stream gives the whole text, whenever it began."""
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
