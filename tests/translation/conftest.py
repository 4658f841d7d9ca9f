"""Translators over fake bundles."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dragoman.service.catalog.catalog import Catalog
from dragoman.service.translation.cache import SegmentCache
from dragoman.service.translation.contract import TranslationLimits
from dragoman.service.translation.language import Detector
from dragoman.service.translation.translator import Translator
from tests.bundles.fakes import FakeEngines, open_catalog
from tests.clock import Clock

OpenTranslator = Callable[..., Translator]


@pytest.fixture
def open_translator() -> Iterator[OpenTranslator]:
    """Opens translators over the bundles in a directory; all engines end with the test."""
    catalogs: list[Catalog] = []

    def open_one(
        root: Path,
        engines: FakeEngines | None = None,
        limits: TranslationLimits | None = None,
        clock: Clock | None = None,
        cache_bytes: int = 0,
    ) -> Translator:
        clock = clock or Clock()
        engines = engines or FakeEngines(clock)
        catalog = open_catalog(root, engines=engines)
        report = catalog.reload()
        assert not report.failed, report.failed
        catalogs.append(catalog)
        cache = SegmentCache(cache_bytes, clock)
        return Translator(catalog, Detector(), cache, limits or TranslationLimits(), clock)

    yield open_one
    for catalog in catalogs:
        catalog.close(drain=False)
