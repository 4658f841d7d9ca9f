"""What is built for a server and for a file: from the same parts, with the differences that are meant."""

import asyncio
import time
from dataclasses import replace
from pathlib import Path

import pytest

from dragoman.service.assembly import OpenSessions, Parts, build_file_parts, build_parts
from dragoman.service.bundles.manifest import LEAP, WEIGHTS, Bundle, FileRecord
from dragoman.service.settings import Settings
from dragoman.service.telemetry.metrics import Metrics
from dragoman.service.translation.contract import TranslationOptions
from tests.bundles.fakes import fake_runner, sentences, write_bundle
from tests.engine.reverse_runner import FakeRunner


def fake_runners(bundle: Bundle, max_rows: int) -> list[FakeRunner]:
    return [fake_runner(bundle.file(WEIGHTS).read_text(), max_rows, bundle.limits.max_source_tokens)]


def translate(parts: Parts, *texts: str) -> list[str]:
    parts.catalog.reload()
    try:
        result = asyncio.run(parts.translator.translate(texts, "pt", "en", TranslationOptions()))
    finally:
        parts.catalog.close(drain=False)
    return [translation.text for translation in result.translations]


def test_sessions_are_shared_until_a_graph_changes(tiny_bundle: Bundle) -> None:
    """A bundle that was exported again has the same weights, and other graphs to prove and to serve."""
    opened = OpenSessions()
    sessions = opened.of(tiny_bundle)
    assert opened.of(replace(tiny_bundle)) is sessions
    changed = replace(tiny_bundle, files={**tiny_bundle.files, LEAP: FileRecord("0" * 64, 1)})
    assert opened.of(changed) is not sessions


def test_a_file_is_translated_as_a_server_translates_it(tmp_path: Path) -> None:
    """One composition root: the command line has no rules of its own."""
    write_bundle(tmp_path / "pt-en", "reverse")
    texts = [*(source for source, _ in sentences()[:20]), "Leia <b>isto</b> em https://example.org, por favor."]
    server = build_parts(Settings(bundles=tmp_path), Metrics(), time.monotonic, fake_runners)
    file = build_file_parts([tmp_path], 1, None, 64, fake_runners)
    assert translate(server, *texts) == translate(file, *texts)


@pytest.mark.parametrize(("single_flight", "shared"), [(True, 1), (False, 0)])
def test_a_benchmark_can_decode_equal_segments_twice(tmp_path: Path, single_flight: bool, shared: int) -> None:
    """Peers decode them twice, too; a server never should."""
    write_bundle(tmp_path / "pt-en")
    metrics = Metrics()
    settings = Settings(bundles=tmp_path, cache_bytes=0)
    parts = build_parts(settings, metrics, time.monotonic, fake_runners, single_flight=single_flight)
    translate(parts, "A porta ficou aberta.", "A porta ficou aberta.")
    assert metrics.totals()["cache_shared"] == shared


@pytest.mark.parametrize("continuous", [True, False])
def test_a_benchmark_can_wait_for_whole_batches(tmp_path: Path, continuous: bool) -> None:
    """Rows then join only an empty batch; a long sentence that runs keeps a short one waiting."""
    write_bundle(tmp_path / "pt-en", "long")
    runners: list[FakeRunner] = []

    def open_runners(bundle: Bundle, max_rows: int) -> list[FakeRunner]:
        runners.extend(fake_runners(bundle, max_rows))
        return runners

    settings = Settings(bundles=tmp_path, cache_bytes=0)
    parts = build_parts(settings, Metrics(), time.monotonic, open_runners, continuous=continuous)
    assert _finishes_first(parts, runners) == ("short" if continuous else "long")


def _finishes_first(parts: Parts, runners: list[FakeRunner]) -> str:
    """Ask for a long sentence, and for a short one when the long one has begun; which answer comes first?"""

    async def ask() -> str:
        loop, begun, asked = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()

        def step(number: int) -> None:
            loop.call_soon_threadsafe(begun.set)
            asyncio.run_coroutine_threadsafe(asked.wait(), loop).result(10)

        long_text = "A porta do jardim ficou aberta toda a noite."
        runners[0].before_step = step
        first = asyncio.create_task(_named("long", parts, long_text))
        await begun.wait()
        second = asyncio.create_task(_named("short", parts, "Fim"))
        await asyncio.sleep(0)  # until it is queued
        asked.set()
        done, waiting = await asyncio.wait([first, second], return_when=asyncio.FIRST_COMPLETED)
        await asyncio.gather(*waiting)
        return next(iter(done)).result() if len(done) == 1 else "both"

    parts.catalog.reload()
    try:
        return asyncio.run(ask())
    finally:
        parts.catalog.close(drain=False)


async def _named(name: str, parts: Parts, text: str) -> str:
    await parts.translator.translate([text], "pt", "en", TranslationOptions(repetition_guard=False))
    return name
