"""A bundle is replaced while it translates."""

import asyncio
import time
from pathlib import Path

from dragoman.service.translation.cache import SegmentCache
from dragoman.service.translation.contract import TranslationLimits, TranslationOptions
from dragoman.service.translation.language import Detector
from dragoman.service.translation.translator import Translator
from tests.bundles.fakes import FakeEngines, open_catalog, write_bundle
from tests.translation.asking import reversed_text


async def test_requests_go_on_while_a_bundle_is_replaced(tmp_path: Path) -> None:
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
