"""Fresh bundles and keys without a restart: when a file changes, or when somebody asks (SIGHUP).

One reload runs at a time, on a thread; asking during one asks for another. Whether a bundle may serve is decided by
the catalog, which keeps the old one when the new one fails.
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from service.api.keys import KeyRing
from service.bundles.catalog import ReloadReport

log = logging.getLogger("dragoman.reload")


class Reloadable(Protocol):
    def reload(self) -> ReloadReport: ...


class Reloader:
    def __init__(self, catalog: Reloadable, keys: KeyRing, published: Callable[[], None]) -> None:
        """`published` is called after each reload, when what serves may have changed."""
        self._catalog = catalog
        self._keys = keys
        self._published = published
        self._asked: asyncio.Event | None = None  # of the loop that runs

    def ask(self) -> None:
        if self._asked is not None:
            self._asked.set()

    async def reload(self) -> ReloadReport:
        self._keys.reload()
        report = await asyncio.to_thread(self._catalog.reload)
        for label in report.loaded:
            log.info("bundle loaded", extra={"bundle": label})
        for label in report.unloaded:
            log.info("bundle unloaded", extra={"bundle": label})
        for problem in report.failed:
            log.error("bundle refused: %s", problem)
        self._published()
        return report

    async def run(self) -> None:
        """Reload whenever it was asked for, until cancelled."""
        self._asked = asyncio.Event()
        while True:
            await self._asked.wait()
            self._asked.clear()
            await self.reload()

    async def watch(self, directory: Path, recursive: bool) -> None:
        """Ask for a reload whenever something in the directory, or also below it, changes, until cancelled."""
        from watchfiles import awatch  # 50 ms that only a server that watches needs

        async for _ in awatch(directory, recursive=recursive):
            self.ask()
