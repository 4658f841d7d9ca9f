"""Reload bundles and keys without a restart: when a file changes, or when somebody asks (SIGHUP).

One reload runs at a time, on a thread; a request during a reload asks for another one. The catalog decides whether a
new bundle may serve, and keeps the old one when the new one fails.
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
    def __init__(self, catalog: Reloadable, keys: KeyRing, published: Callable[[ReloadReport], None]) -> None:
        """`published` is called after each reload, when other bundles may serve than before."""
        self._catalog = catalog
        self._keys = keys
        self._published = published
        self._asked: asyncio.Event | None = None  # of the loop that runs

    def ask(self) -> None:
        if self._asked is not None:
            self._asked.set()

    async def reload(self) -> ReloadReport:
        self._keys.reload()  # first: a revoked key is gone, even if the bundles fail
        report = await asyncio.to_thread(self._catalog.reload)
        _log(report)
        self._published(report)
        return report

    async def run(self) -> None:
        """Reload whenever it was asked for, until cancelled."""
        self._asked = asyncio.Event()
        while True:
            await self._asked.wait()
            self._asked.clear()
            try:
                await self.reload()
            except Exception:  # a disk that fails now may work at the next reload
                log.exception("a reload failed; the loaded bundles go on serving")

    async def watch_bundles(self, directory: Path) -> None:
        """Ask for a reload whenever a bundle in the directory changes, until cancelled.

        Other files may change there, such as our own log: they ask for nothing.
        """
        from watchfiles import awatch  # takes 50 ms, so only a server that watches imports it

        async for _ in awatch(directory):
            if await self._bundles_changed():
                self.ask()

    async def _bundles_changed(self) -> bool:
        try:
            return await asyncio.to_thread(self._catalog.changed)
        except Exception:
            log.exception("the bundles could not be checked for changes; the next change is checked again")
            return False

    async def watch_keys(self, file: Path, look_again_seconds: float = 5.0) -> None:
        """Ask for a reload whenever the keys file changes, until cancelled.

        The directory is watched, because the file may be replaced by renaming another onto it, or by changing a link.
        Other files may change there, such as our own log: they ask for nothing. A change without an event, behind a
        link to another directory or on a remote volume, is found by looking again at intervals.
        """
        from watchfiles import awatch

        again_ms = round(look_again_seconds * 1000)
        events = awatch(file.parent, recursive=False, watch_filter=None, rust_timeout=again_ms, yield_on_timeout=True)
        async for _ in events:
            if self._keys.changed():
                self.ask()


def _log(report: ReloadReport) -> None:
    for label in report.loaded:
        log.info("bundle loaded", extra={"bundle": label})
    for label in report.offered:
        log.info("bundle found", extra={"bundle": label})
    for label in report.unloaded:
        log.info("bundle unloaded", extra={"bundle": label})
    for problem in report.failed:
        log.error("bundle refused: %s", problem)
    for problem in report.unlisted:
        log.error("%s", problem)
    for shadow in report.shadowed:
        log.warning("bundle shadowed: %s", shadow)
