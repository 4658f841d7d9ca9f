"""Builds the parts that translate, from settings: engines and tokenizers for the catalog, and the translator.

Imports of heavy libraries happen here, when a server (or `dragoman doctor`) really starts, so that everything else
stays quick to import. Tests build parts of their own.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakValueDictionary

from dragoman.service.bundles.manifest import Bundle
from dragoman.service.catalog.catalog import Catalog, ReloadReport, Route, Served
from dragoman.service.engine.explainer import Explainer, explainer_of
from dragoman.service.engine.job import DecodingRules
from dragoman.service.engine.loop import Engine
from dragoman.service.engine.scheduler import EngineSettings
from dragoman.service.engine.seams import Runner
from dragoman.service.process.cgroup import available_cpus
from dragoman.service.settings import Settings
from dragoman.service.telemetry.metrics import Metrics
from dragoman.service.translation.contract import TranslationLimits
from dragoman.service.translation.explainers import Explainers
from dragoman.service.translation.explanations import Explanations
from dragoman.service.translation.translator import Translator

if TYPE_CHECKING:
    from dragoman.service.engine.sessions import OrtSessions

EMBEDDED = Path(__file__).parent / "embedded"

log = logging.getLogger("dragoman.bundles")


class ServingCatalog(Protocol):
    """What the app asks of a catalog."""

    def bundles(self) -> Sequence[Bundle]: ...
    def routes(self) -> Sequence[Route]: ...
    def served(self) -> Sequence[Served[Any]]: ...
    def changed(self) -> bool: ...
    def reload(self) -> ReloadReport: ...
    def close(self, drain: bool = True) -> None: ...


@dataclass(frozen=True)
class Parts:
    catalog: ServingCatalog
    translator: Translator
    explanations: Explanations | None = None


def pair_label(bundle: Bundle) -> str:
    """The metric label of a bundle's engine: its pair, or all of them."""
    return "+".join(f"{pair.source}-{pair.target}" for pair in bundle.pairs)


def bundle_roots(settings: Settings) -> tuple[Path, ...]:
    return (settings.bundles or EMBEDDED,)


def num_loops(settings: Settings) -> int:
    """Decode loops per bundle: one thread each, because a second thread in one step waits more than it works."""
    return settings.threads or available_cpus()


class OpenSessions:
    """The graphs of each bundle, loaded once for all who run them: the engine's loops, and explanations."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._open: WeakValueDictionary[tuple[object, ...], OrtSessions] = WeakValueDictionary()  # by path and content

    def of(self, bundle: Bundle) -> "OrtSessions":
        from dragoman.service.engine.sessions import OrtSessions

        key = bundle.path, *((name, record.sha256) for name, record in sorted(bundle.files.items()))
        sessions = self._open.get(key)
        if sessions is None:
            sessions = self._open[key] = OrtSessions(bundle, threads=1, provider=self._settings.provider)
        return sessions

    def runners(self, bundle: Bundle, settings: Settings) -> list[Runner]:
        from dragoman.service.engine.runner import OrtRunner

        sessions = self.of(bundle)
        return [OrtRunner(sessions, settings.max_rows) for _ in range(num_loops(settings))]

    def explainer(self, served: Served[Any]) -> Explainer:
        return explainer_of(self.of(served.bundle))


def build_parts(
    settings: Settings,
    metrics: Metrics,
    clock: Callable[[], float],
    open_runners: Callable[[Bundle, Settings], Sequence[Runner]] | None = None,
) -> Parts:
    from dragoman.service.translation.cache import SegmentCache
    from dragoman.service.translation.language import Detector
    from dragoman.service.translation.tokenizer import load_tokenizer

    metrics.set_threads(num_loops(settings))
    sessions = OpenSessions(settings)
    opener = open_runners or sessions.runners
    catalog = Catalog(
        bundle_roots(settings),
        open_engine=lambda bundle: _open_engine(bundle, opener(bundle, settings), settings, metrics, clock),
        open_tokenizer=load_tokenizer,
        observer=_CatalogMetrics(metrics),
        pivot=settings.pivot,
    )
    limits = TranslationLimits(
        max_texts=settings.max_texts,
        max_characters=settings.max_characters,
        max_beam_size=min(settings.max_beam_size, settings.max_rows),  # a beam's rows are in one batch
        max_glossary_terms=settings.max_glossary_terms,
        default_timeout_seconds=settings.timeout_seconds,
    )
    cache = SegmentCache(settings.cache_bytes, clock, settings.single_flight, metrics.cache_looked_up)
    explainers = Explainers(sessions.explainer)
    translator = Translator(catalog, Detector(), cache, limits, clock, explainers.attention)
    return Parts(catalog, translator, Explanations(translator, explainers, settings.timeout_seconds, clock))


def _open_engine(
    bundle: Bundle,
    runners: Sequence[Runner],
    settings: Settings,
    metrics: Metrics,
    clock: Callable[[], float],
) -> Engine:
    return Engine(
        runners,
        DecodingRules.of(bundle),
        EngineSettings(
            max_queued_tokens=settings.max_queued_tokens,
            encode_budget_tokens=settings.encode_budget_tokens,
            step_budget_seconds=settings.step_budget_ms / 1000,
            continuous=settings.continuous,
        ),
        clock,
        metrics.observer(pair_label(bundle)),
    )


class _CatalogMetrics:
    """The catalog's observer."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def loaded(self, bundle: Bundle) -> None:
        self._metrics.bundle_loaded("loaded")

    def failed(self, path: Path, problem: str) -> None:
        self._metrics.bundle_loaded("failed")

    def unloaded(self, bundle: Bundle) -> None:
        log.debug("bundle unloaded", extra={"bundle": bundle.name})
