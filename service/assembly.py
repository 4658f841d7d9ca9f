"""The one place that builds what translates: for the server and the doctor, and for `dragoman translate`.

Heavy libraries are imported inside the functions, when somebody really translates, so that everything else starts
quickly. Tests pass runners of their own.
"""

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from dragoman.service.bundles.manifest import Bundle
from dragoman.service.catalog.catalog import Catalog
from dragoman.service.catalog.served import Served
from dragoman.service.engine.explainer import Explainer, explainer_of
from dragoman.service.engine.file_batch import batch_for
from dragoman.service.engine.footprint import estimated_bytes
from dragoman.service.engine.job import DecodingRules
from dragoman.service.engine.loop import Engine
from dragoman.service.engine.scheduler import EngineSettings
from dragoman.service.engine.seams import Runner
from dragoman.service.process.cgroup import available_cpus
from dragoman.service.translation.contract import TranslationLimits

if TYPE_CHECKING:
    from dragoman.service.engine.sessions import OrtSessions, Provider
    from dragoman.service.settings import Settings
    from dragoman.service.telemetry.metrics import Metrics
    from dragoman.service.translation.explanations import Explanations
    from dragoman.service.translation.translator import Translator

EMBEDDED = Path(__file__).parent / "embedded"
_FILE_CACHE_BYTES = 64 * 1024 * 1024

OpenRunners = Callable[[Bundle, int], Sequence[Runner]]  # bundle, rows of the batch -> a runner for each decode loop


@dataclass(frozen=True)
class Parts:
    """A translator, and the bundles that it translates with: nothing is loaded before `catalog.reload()`."""

    catalog: Catalog
    translator: "Translator"
    explanations: "Explanations | None" = None


def pair_label(bundle: Bundle) -> str:
    """The metric label of a bundle's engine: its pair, or all of them."""
    return "+".join(f"{pair.source}-{pair.target}" for pair in bundle.pairs)


def bundle_roots(settings: "Settings") -> tuple[Path, ...]:
    return (settings.bundles or EMBEDDED,)


def num_loops(settings: "Settings") -> int:
    """Decode loops per bundle: one thread each, because a second thread in one step waits more than it works."""
    return settings.threads or available_cpus()


class OpenSessions:
    """The graphs of each bundle, loaded once and shared by the engine's loops and the explainer."""

    def __init__(self, provider: "Provider" = "auto") -> None:
        self._provider = provider
        self._open: WeakValueDictionary[tuple[object, ...], OrtSessions] = WeakValueDictionary()  # by path and content

    def of(self, bundle: Bundle) -> "OrtSessions":
        from dragoman.service.engine.sessions import OrtSessions

        key = bundle.path, *((name, record.sha256) for name, record in sorted(bundle.files.items()))
        sessions = self._open.get(key)
        if sessions is None:
            sessions = self._open[key] = OrtSessions(bundle, threads=1, provider=self._provider)
        return sessions

    def runners(self, bundle: Bundle, max_rows: int, num_loops: int, reserve: bool = True) -> list[Runner]:
        """`reserve` takes the memory of the whole batch at once, instead of when it is first used."""
        from dragoman.service.engine.runner import OrtRunner

        sessions = self.of(bundle)
        return [OrtRunner(sessions, max_rows, reserve=reserve) for _ in range(num_loops)]

    def explainer(self, served: Served) -> Explainer:
        return explainer_of(self.of(served.bundle))


def build_parts(
    settings: "Settings",
    metrics: "Metrics",
    clock: Callable[[], float],
    open_runners: OpenRunners | None = None,
    *,
    single_flight: bool = True,
    continuous: bool = True,
) -> Parts:
    """For the server and the doctor. Only benchmarks and tests switch `single_flight` and `continuous` off."""
    from dragoman.service.translation.cache import SegmentCache
    from dragoman.service.translation.explainers import Explainers
    from dragoman.service.translation.explanations import Explanations
    from dragoman.service.translation.language import Detector
    from dragoman.service.translation.tokenizer import load_tokenizer
    from dragoman.service.translation.translator import Translator

    loops = num_loops(settings)
    metrics.set_threads(loops)
    sessions = OpenSessions(settings.provider)
    opener = open_runners or (lambda bundle, max_rows: sessions.runners(bundle, max_rows, loops))
    chosen = EngineSettings(
        max_queued_tokens=settings.max_queued_tokens,
        encode_budget_tokens=settings.encode_budget_tokens,
        continuous=continuous,
    )

    def open_engine(bundle: Bundle) -> Engine:
        observer = metrics.observer(pair_label(bundle))
        return Engine(opener(bundle, settings.max_rows), DecodingRules.of(bundle), chosen, clock, observer)

    catalog = Catalog(
        bundle_roots(settings),
        open_engine,
        load_tokenizer,
        settings.pivot,
        settings.bundle_memory,
        lambda bundle: estimated_bytes(bundle, settings.max_rows, loops),
        metrics,
        clock,
    )
    cache = SegmentCache(settings.cache_bytes, clock, single_flight, metrics.cache_looked_up)
    explainers = Explainers(sessions.explainer)
    translator = Translator(catalog, Detector(), cache, _limits(settings), clock, explainers.attention)
    return Parts(catalog, translator, Explanations(translator, explainers, settings.timeout_seconds, clock))


def build_file_parts(
    roots: Sequence[Path],
    threads: int | None,
    beam_size: int | None,
    max_beam_size: int,
    open_runners: OpenRunners | None = None,
) -> Parts:
    """For `dragoman translate`: larger batches, no limits, and no rows kept free for other requests."""
    from dragoman.service.translation.cache import SegmentCache
    from dragoman.service.translation.explainers import Explainers
    from dragoman.service.translation.language import Detector
    from dragoman.service.translation.tokenizer import load_tokenizer
    from dragoman.service.translation.translator import Translator

    loops, sessions = threads or available_cpus(), OpenSessions()
    opener = open_runners or (lambda bundle, max_rows: sessions.runners(bundle, max_rows, loops, reserve=False))

    def open_engine(bundle: Bundle) -> Engine:
        batch = batch_for(bundle, beam_size or bundle.rules.default_beam_size)
        # The windows of lines bound what is queued.
        chosen = EngineSettings(max_queued_tokens=sys.maxsize, interactive_share=0.0, max_batch_tokens=batch.tokens)
        return Engine(opener(bundle, batch.rows), DecodingRules.of(bundle), chosen)

    catalog = Catalog(roots, open_engine, load_tokenizer)
    cache = SegmentCache(_FILE_CACHE_BYTES, time.monotonic)  # equal lines are decoded once, as on the server
    limits = TranslationLimits(max_texts=sys.maxsize, max_characters=sys.maxsize, max_beam_size=max_beam_size)
    explainers = Explainers(sessions.explainer)
    return Parts(catalog, Translator(catalog, Detector(), cache, limits, ask_attention=explainers.attention))


def _limits(settings: "Settings") -> TranslationLimits:
    return TranslationLimits(
        max_texts=settings.max_texts,
        max_characters=settings.max_characters,
        max_beam_size=min(settings.max_beam_size, settings.max_rows),  # the rows of a beam are in one batch
        default_timeout_seconds=settings.timeout_seconds,
    )
