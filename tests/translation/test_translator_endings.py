"""How a translation ends: whole, cut, late, refused, cancelled, failed. The answer always says so."""

import asyncio
from pathlib import Path

import pytest

from dragoman.service import errors
from dragoman.service.engine.job import FinishReason
from dragoman.service.engine.scheduler import EngineSettings
from dragoman.service.translation.contract import SegmentWarning
from tests.bundles.fakes import FakeEngines, write_bundle
from tests.clock import Clock
from tests.translation.asking import Hold, events_of, pass_time_from_the_third_step, streamed_text, translate
from tests.translation.conftest import OpenTranslator


@pytest.mark.parametrize(("kind", "reason"), [("loop", "repetition"), ("long", "length")])
async def test_every_segment_says_how_it_ended_and_strict_refuses(
    tmp_path: Path, open_translator: OpenTranslator, kind: str, reason: str
) -> None:
    """An answer that is not whole says so."""
    write_bundle(tmp_path / "pt-en", kind)
    translator = open_translator(tmp_path)
    text = "O gato dorme no jardim."
    assert (await translate(translator, text)).segments[0].finish_reason == reason
    with pytest.raises(errors.StrictRefusal):
        await translate(translator, text, strict=True)
    assert streamed_text(await events_of(translator, text)) == (await translate(translator, text)).text


async def test_a_model_that_says_nothing_is_reported(tmp_path: Path, open_translator: OpenTranslator) -> None:
    """An empty translation is a loss, even if it ended with eos."""
    write_bundle(tmp_path / "pt-en", "mute")
    translator = open_translator(tmp_path)
    segment = (await translate(translator, "O gato dorme no jardim.")).segments[0]
    assert (segment.text, segment.warnings) == ("", (SegmentWarning.EMPTY_TRANSLATION,))
    with pytest.raises(errors.StrictRefusal):
        await translate(translator, "O gato dorme no jardim.", strict=True)


async def test_a_deadline_in_the_queue_is_504(tmp_path: Path, open_translator: OpenTranslator) -> None:
    """It is not decoded, and the answer says so."""
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
    tmp_path: Path, open_translator: OpenTranslator, strict: bool
) -> None:
    """Partial and flagged; with strict, 504."""
    write_bundle(tmp_path / "pt-en")
    clock = Clock()
    engines = FakeEngines(clock)
    translator = open_translator(tmp_path, engines, clock=clock)
    pass_time_from_the_third_step(engines, clock)
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


async def test_a_full_queue_is_429_with_a_time_to_come_back(tmp_path: Path, open_translator: OpenTranslator) -> None:
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


async def test_cancelling_the_task_frees_its_rows(tmp_path: Path, open_translator: OpenTranslator) -> None:
    """A client that leaves must not cost the others anything."""
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


async def test_a_failing_runner_is_our_fault_and_not_the_end(tmp_path: Path, open_translator: OpenTranslator) -> None:
    """500 without the cause in it; the next request is answered."""
    write_bundle(tmp_path / "pt-en")
    engines = FakeEngines(Clock())
    translator = open_translator(tmp_path, engines)
    engines.runners["pt-en 1"].fail_at.add("step")
    with pytest.raises(errors.InternalError) as raised:
        await translate(translator, "O gato dorme.")
    assert "step" not in raised.value.detail
    assert (await translate(translator, "O gato dorme.")).text == "O gato dorme."


async def test_a_stopped_engine_is_503(tmp_path: Path, open_translator: OpenTranslator) -> None:
    """The process is going down: the caller should ask another."""
    write_bundle(tmp_path / "pt-en")
    engines = FakeEngines(Clock())
    translator = open_translator(tmp_path, engines)
    engines.engines["pt-en 1"].stop()
    with pytest.raises(errors.Draining):
        await translate(translator, "O gato dorme.")
