"""The explain graphs of the bundles that serve: opened when first needed, and run on one thread.

`explanations.py` shows what they say; `decode.py` asks them which words come from which, to put tags back.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from dragoman.service.catalog.served import Served
from dragoman.service.engine.explainer import Explainer
from dragoman.service.translation.tag_places import Floats

T = TypeVar("T")
OpenExplainer = Callable[[Served], Explainer]

log = logging.getLogger("dragoman.explain")


class Explainers:
    def __init__(self, open_explainer: OpenExplainer) -> None:
        """`open_explainer` is called on the thread, when a bundle is asked for the first time."""
        self._open = open_explainer
        self._explainers: WeakKeyDictionary[Served, Explainer] = WeakKeyDictionary()
        # One thread, so that callers who leave cannot make several explanations run at one time.
        self._worker = ThreadPoolExecutor(1, "explain")

    def submit(self, served: Served, work: Callable[[Explainer], T]) -> "Future[T]":
        return self._worker.submit(lambda: work(self._of(served)))

    async def attention(self, served: Served, source_ids: Sequence[int], target_ids: Sequence[int]) -> Floats | None:
        """[target tokens, source tokens], the mean of all layers and heads; None where the bundle cannot tell."""
        if not target_ids:
            return None

        def look(explainer: Explainer) -> Floats:
            name = "cross_attention"  # [layers, heads, target, source]
            found = explainer.explain(tuple(source_ids), tuple(target_ids), 1, [name])[name]
            return np.asarray(found.reshape(-1, len(target_ids), len(source_ids)).mean(0), np.float32)

        try:
            return await asyncio.wrap_future(self.submit(served, look))
        except Exception:
            log.exception("The explain graph of a bundle failed; its tags are translated as placeholders.")
            return None

    def _of(self, served: Served) -> Explainer:
        explainer = self._explainers.get(served)
        if explainer is None:
            explainer = self._explainers[served] = self._open(served)
        return explainer
