"""Fresh bundles and keys without a restart: when a file changes, or when somebody asks (SIGHUP).

One reload runs at a time, on a thread; asking during one asks for another. Whether a bundle may serve is decided by
the catalog, which keeps the old one when the new one fails.
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from dragoman.service.api.keys import KeyRing
from dragoman.service.catalog.catalog import ReloadReport

log = logging.getLogger("dragoman.reload")


class Reloadable(Protocol):
    def changed(self) -> bool: ...
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
        self._keys.reload()  # first: a revoked key is gone, whatever becomes of the bundles
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
            try:
                await self.reload()
            except Exception:  # of one reload: a disk that fails now may be well when it is asked for again
                log.exception("a reload failed; what serves goes on serving")

    async def watch_bundles(self, directory: Path) -> None:
        """Ask for a reload whenever a bundle in the directory changes, until cancelled; our own log may lie there."""
        from watchfiles import awatch  # 50 ms that only a server that watches needs

        async for _ in awatch(directory):
            if await self._bundles_changed():
                self.ask()

    async def _bundles_changed(self) -> bool:
        try:
            return await asyncio.to_thread(self._catalog.changed)
        except Exception:
            log.exception("the bundles could not be looked at; the next change is looked at again")
            return False

    async def watch_keys(self, file: Path, look_again_seconds: float = 5.0) -> None:
        """Ask for a reload whenever the keys file changes, until cancelled.

        It is its directory that tells: the file is replaced by renaming another onto it, or a link that it lies behind.
        Of what else happens there (our own log may be in it) nothing follows. What no event tells, because a link leads
        elsewhere or a volume is remote, is found by looking again.
        """
        from watchfiles import awatch

        again_ms = round(look_again_seconds * 1000)
        events = awatch(file.parent, recursive=False, watch_filter=None, rust_timeout=again_ms, yield_on_timeout=True)
        async for _ in events:
            if self._keys.changed():
                self.ask()
