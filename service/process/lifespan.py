"""What happens beside the requests: bundles are loaded before the first one, watched meanwhile, and closed at the end.

The server listens only after the bundles have been loaded and have passed their golden check. A background task that
fails is logged and ends; requests go on.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from dragoman.service.api.context import Rooms
from dragoman.service.api.limits import Usage
from dragoman.service.catalog.catalog import Catalog
from dragoman.service.process.reload import Reloader

SAVE_USAGE_SECONDS = 5.0
WARM_DETECTOR_SECONDS = 3.0  # after the start, so that it does not delay it

log = logging.getLogger("dragoman.lifespan")

Work = Callable[[], Coroutine[Any, Any, None]]


class NothingServesError(Exception):
    """No bundle passed its checks at start."""


def lifespan_of(catalog: Catalog, rooms: Rooms, reloader: Reloader) -> Callable[[Any], Any]:
    """What FastAPI takes as its lifespan."""

    @asynccontextmanager
    async def lifespan(app: object) -> AsyncIterator[None]:
        if rooms.lifecycle.loaded:  # the app runs a second time: its first run ended with draining
            rooms.lifecycle.loaded = rooms.lifecycle.draining = False
        report = await reloader.reload()
        if not catalog.routes():
            await asyncio.to_thread(catalog.close, drain=False)
            where = rooms.settings.bundles or "the package"
            why = "the lines above say why" if report.failed or report.unlisted else f"there is none in {where}"
            log.error("no bundle can serve: %s; run `dragoman doctor` with the same --bundles to learn more", why)
            raise NothingServesError
        rooms.lifecycle.loaded = True  # ready, unless a signal to stop has come
        tasks = [asyncio.create_task(_logged(name, work)) for name, work in _background(rooms, reloader).items()]
        try:
            yield
        finally:
            rooms.lifecycle.draining = True
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            rooms.gate.usage.save()
            await asyncio.to_thread(catalog.close, drain=True)

    return lifespan


def _background(rooms: Rooms, reloader: Reloader) -> dict[str, Work]:
    settings = rooms.settings
    work: dict[str, Work] = {
        "reload": reloader.run,
        "save usage": partial(_save_usage, rooms.gate.usage),
        "warm detector": partial(_warm_detector, rooms),
    }
    if settings.watch and settings.bundles is not None:
        work["watch bundles"] = partial(reloader.watch_bundles, settings.bundles)
    if settings.watch and settings.keys_file is not None:
        work["watch keys"] = partial(reloader.watch_keys, settings.keys_file)
    return work


async def _logged(name: str, work: Work) -> None:
    try:
        await work()
    except Exception:
        log.exception("a background task failed", extra={"task": name})


async def _save_usage(usage: Usage) -> None:
    while True:
        await asyncio.sleep(SAVE_USAGE_SECONDS)
        await asyncio.to_thread(usage.save)


async def _warm_detector(rooms: Rooms) -> None:
    """Detection reads its model when it is first used, which takes a second: no caller should wait for it."""
    await asyncio.sleep(WARM_DETECTOR_SECONDS)
    await asyncio.to_thread(rooms.translator.detect, "Bom dia")
