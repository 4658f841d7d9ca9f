"""What happens beside the requests: bundles are loaded before the first one, watched and saved meanwhile, closed after.

The server listens only when the bundles have been loaded and have proved themselves. A task that fails is told in the
log and ends; the requests go on.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from dragoman.service.api.context import Rooms
from dragoman.service.api.limits import Usage
from dragoman.service.assembly import ServingCatalog
from dragoman.service.process.reload import Reloader

SAVE_USAGE_SECONDS = 5.0
WARM_DETECTOR_SECONDS = 3.0  # after the start, which has enough to do

log = logging.getLogger("dragoman.lifespan")

Work = Callable[[], Coroutine[Any, Any, None]]


class NothingServesError(Exception):
    """No bundle passed its checks at start."""


def lifespan_of(catalog: ServingCatalog, rooms: Rooms, reloader: Reloader) -> Callable[[Any], Any]:
    """What FastAPI takes as its lifespan."""

    @asynccontextmanager
    async def lifespan(app: object) -> AsyncIterator[None]:
        if rooms.lifecycle.loaded:  # the same app's last life has ended with draining
            rooms.lifecycle.loaded = rooms.lifecycle.draining = False
        report = await reloader.reload()
        if not catalog.routes():
            await asyncio.to_thread(catalog.close, drain=False)
            where = rooms.settings.bundles or "the package"
            why = "the lines above say why" if report.failed else f"there is none in {where}"
            log.error("no bundle can serve: %s; `dragoman doctor` with the same --bundles tells more", why)
            raise NothingServesError
        rooms.lifecycle.loaded = True  # and ready, unless a signal came meanwhile
        tasks = [asyncio.create_task(_told(name, work)) for name, work in _background(rooms, reloader).items()]
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


async def _told(name: str, work: Work) -> None:
    try:
        await work()
    except Exception:
        log.exception("a background task failed", extra={"task": name})


async def _save_usage(usage: Usage) -> None:
    while True:
        await asyncio.sleep(SAVE_USAGE_SECONDS)
        await asyncio.to_thread(usage.save)


async def _warm_detector(rooms: Rooms) -> None:
    """Detection reads its model when it is first used, which takes a second: better now than from a caller's time."""
    await asyncio.sleep(WARM_DETECTOR_SECONDS)
    await asyncio.to_thread(rooms.translator.detect, "Bom dia")
