"""A translator and a catalog without a model: what the routes are tested with.

`FakeTranslator` reverses the letters of every line, so that an answer shows which text it belongs to, and does
whatever else a test puts into `before`: refuse, wait, be cancelled.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from dragoman.service.assembly import Parts
from dragoman.service.bundles.manifest import (
    Architecture,
    Bundle,
    Limits,
    Pair,
    Rules,
    SpecialIds,
    TokenizerFiles,
)
from dragoman.service.catalog.catalog import ReloadReport
from dragoman.service.catalog.served import BundleStatus
from dragoman.service.engine.job import FinishReason
from dragoman.service.errors import UnknownPair
from dragoman.service.settings import Settings
from dragoman.service.telemetry.metrics import Metrics
from dragoman.service.translation.contract import (
    Alternative,
    Detection,
    DoneEvent,
    Segment,
    SegmentEvent,
    StreamEvent,
    Timings,
    TokenEvent,
    TokenLogProb,
    Translation,
    TranslationLimits,
    TranslationOptions,
    TranslationResult,
)
from dragoman.service.translation.request_limits import check_request


async def nothing() -> None:
    """What happens before a translation, unless a test says otherwise."""


class FakeTranslator:
    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings or Settings()
        self.pairs = {("pt", "en"), ("en", "pt")}
        self.before: Callable[[], Awaitable[None]] = nothing
        self.orders: list[tuple[list[str], str, str, TranslationOptions, str]] = []
        self.num_cancelled = 0

    async def translate(
        self, texts: Sequence[str], source: str, target: str, options: TranslationOptions, tenant: str = ""
    ) -> TranslationResult:
        self.orders.append((list(texts), source, target, options, tenant))
        source, target = (code.lower().partition("-")[0] for code in (source, target))  # no bundle here has a region
        self._check(texts, source, target, options)
        try:
            await self.before()
        except asyncio.CancelledError:
            self.num_cancelled += 1
            raise
        translations = tuple(self._translation(text, source, options) for text in texts)
        return TranslationResult(translations, target, "fake", "1", Timings(0.001, 0.002, 0.003))

    async def stream(
        self, text: str, source: str, target: str, options: TranslationOptions, tenant: str = ""
    ) -> AsyncGenerator[StreamEvent, None]:
        result = await self.translate([text], source, target, options, tenant)
        try:
            for position, letter in enumerate(result.translations[0].text):
                yield TokenEvent(0, letter)
                if position == 0:
                    await self.before()
            for index, segment in enumerate(result.translations[0].segments):
                yield SegmentEvent(index, segment)
            yield DoneEvent(result)
        except (asyncio.CancelledError, GeneratorExit):
            self.num_cancelled += 1
            raise

    def detect(self, text: str) -> list[Detection]:
        return [Detection("pt", 0.75), Detection("en", 0.25)]

    def _check(self, texts: Sequence[str], source: str, target: str, options: TranslationOptions) -> None:
        settings = self.settings
        limits = TranslationLimits(settings.max_texts, settings.max_characters, settings.max_beam_size)
        check_request(texts, options, limits)
        if (("pt" if source == "auto" else source), target) not in self.pairs:
            raise UnknownPair("No bundle translates this pair; GET /v1/languages lists those that are served.")

    def _translation(self, text: str, source: str, options: TranslationOptions) -> Translation:
        detected = Detection("pt", 0.75) if source == "auto" else None
        segments = tuple(segment(line, options) for line in text.split("\n") if line)
        translated = "\n".join(line[::-1] for line in text.split("\n"))
        separators = tuple(re.split(r"[^\n]+", text))
        return Translation(translated, detected.language if detected else source, None, segments, separators, detected)


def segment(line: str, options: TranslationOptions) -> Segment:
    alternatives = tuple(Alternative(line[::-1] + "'" * rank, -0.5 - rank) for rank in range(1, options.n_best))
    log_probs = tuple(TokenLogProb(letter, -0.1) for letter in line[::-1]) if options.log_probs else None
    return Segment(line, line[::-1], -0.5, FinishReason.EOS, len(line) + 1, (), alternatives, log_probs)


def fake_bundle(name: str, source: str, target: str, version: str = "1") -> Bundle:
    return Bundle(
        path=Path("/nowhere") / name,
        name=name,
        version=version,
        precision="int8",
        pairs=(Pair(source, target),),
        architecture=Architecture(64, 16, 32, 2, 1, 1, "pre", "sinusoidal", 64, False),
        limits=Limits(64, 64),
        tokenizer=TokenizerFiles("sentencepiece", {"model": "tokenizer.model"}),
        special_ids=SpecialIds(0, 1, 2, 3, ()),
        rules=Rules(),
        state=(),
        files={},
        evidence={"parity": 1.0},
        training={"corpora": []},
    )


class FakeCatalog:
    def __init__(self) -> None:
        self.num_reloads = 0
        self.closed = False
        self.served_bundles = [fake_bundle("en-pt", "en", "pt"), fake_bundle("pt-en", "pt", "en")]

    def bundles(self) -> list[Bundle]:
        return self.served_bundles

    def statuses(self) -> list[BundleStatus]:
        return [BundleStatus(bundle, "loaded", 1 << 20) for bundle in self.served_bundles]

    def memory(self) -> tuple[int, int]:
        return len(self.served_bundles), len(self.served_bundles) << 20

    def routes(self) -> list[tuple[str, str, str | None]]:
        return [(pair.source, pair.target, None) for bundle in self.served_bundles for pair in bundle.pairs]

    def served(self) -> list[Any]:
        return []

    def changed(self) -> bool:
        return True

    def reload(self) -> ReloadReport:
        self.num_reloads += 1
        return ReloadReport()

    def close(self, drain: bool = True) -> None:
        self.closed = True


def fake_parts(translator: FakeTranslator, catalog: FakeCatalog | None = None) -> Callable[..., Parts]:
    """What `create_app` takes instead of `build_parts`."""

    def build(settings: Settings, metrics: Metrics, clock: Callable[[], float]) -> Parts:
        translator.settings = settings
        return Parts(catalog or FakeCatalog(), translator)  # type: ignore[arg-type]

    return build
