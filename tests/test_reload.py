"""The keys file is read again when it changes, however it does, and at no other time; nothing that fails ends that."""

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from dragoman.service.api.keys import Key, KeyRing, digest, write_keys
from dragoman.service.catalog.catalog import ReloadReport
from dragoman.service.process.reload import Reloader
from tests.bundles.fakes import open_catalog, write_bundle


class NoBundles:
    def changed(self) -> bool:
        return False

    def reload(self) -> ReloadReport:
        return ReloadReport()


class CountedLooks(KeyRing):
    """Real keys, that say when somebody has looked whether they changed."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.looked = asyncio.Semaphore(0)

    def changed(self) -> bool:
        self.looked.release()
        return super().changed()


class WatchedKeys:
    def __init__(self, path: Path) -> None:
        self.num_reloads = 0
        self._path = path
        self._ring = CountedLooks(path)
        self._reloaded = asyncio.Event()
        self._reloader = Reloader(NoBundles(), self._ring, published=self._note)

    def _note(self, report: ReloadReport) -> None:
        self.num_reloads += 1
        self._reloaded.set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Looks every 50 ms, so that a test does not wait."""
        work = (self._reloader.run(), self._reloader.watch_keys(self._path, look_again_seconds=0.05))
        tasks = [asyncio.create_task(each) for each in work]
        try:
            async with asyncio.timeout(30):
                await self._ring.looked.acquire()
                yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def several_looks(self) -> None:
        while not self._ring.looked.locked():
            await self._ring.looked.acquire()  # those before
        for _ in range(5):
            await self._ring.looked.acquire()

    async def until_known(self, key: str) -> None:
        while self._ring.find(key) is None:
            self._reloaded.clear()
            await self._reloaded.wait()


@contextmanager
def log_to(path: Path) -> Iterator[None]:
    handler, logger = logging.FileHandler(path), logging.getLogger("dragoman")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        handler.close()


async def test_a_log_beside_the_keys_is_no_reason_to_read_them(tmp_path: Path) -> None:
    """A reload is a line in the log; were that line a change, it would ask for the next reload, for ever."""
    path, log = tmp_path / "keys.json", tmp_path / "server.log"
    write_keys(path, [])
    watched = WatchedKeys(path)
    with log_to(log):
        async with watched.running():
            for number, key in enumerate(("first", "second"), 1):
                write_keys(path, [Key(key, digest(key))])
                await watched.until_known(key)
                await watched.several_looks()
                assert watched.num_reloads == number
    assert log.read_text().splitlines() == ["keys reloaded"] * 2


async def test_a_broken_file_is_told_once(tmp_path: Path) -> None:
    """What it says is a line in the log, too; and the mended file is read."""
    path = tmp_path / "keys.json"
    write_keys(path, [])
    watched = WatchedKeys(path)
    with log_to(tmp_path / "server.log"):
        async with watched.running():
            path.write_text("{")
            await watched.several_looks()
            write_keys(path, [Key("mended", digest("mended"))])
            await watched.until_known("mended")
    refused, mended = (tmp_path / "server.log").read_text().splitlines()
    assert "cannot be read" in refused
    assert mended == "keys reloaded"


async def test_a_file_that_is_written_in_place_is_read(tmp_path: Path) -> None:
    """As an editor does, which knows nothing of renaming; also where the new content is as long as the old."""
    path = tmp_path / "keys.json"
    write_keys(path, [Key("old", digest("old"))])
    new = tmp_path / "new.json"
    write_keys(new, [Key("new", digest("new"))])
    watched = WatchedKeys(path)
    async with watched.running():
        path.write_bytes(new.read_bytes())
        await watched.until_known("new")


async def test_keys_behind_a_link_to_another_directory_are_read(tmp_path: Path) -> None:
    """Nothing happens in the directory that is watched, so nobody tells."""
    path, elsewhere = tmp_path / "keys.json", tmp_path / "elsewhere" / "keys.json"
    write_keys(elsewhere, [])
    path.symlink_to(elsewhere)
    watched = WatchedKeys(path)
    async with watched.running():
        write_keys(elsewhere, [Key("new", digest("new"))])
        await watched.until_known("new")


async def test_a_change_before_the_watch_began_is_seen(tmp_path: Path) -> None:
    """Bundles are loaded for seconds between the first reading of the keys and the watch."""
    path = tmp_path / "keys.json"
    write_keys(path, [])
    watched = WatchedKeys(path)
    write_keys(path, [Key("early", digest("early"))])
    async with watched.running():
        await watched.until_known("early")


class CountedBundles(NoBundles):
    """Bundles that differ from those last read only when told so, and say when somebody has looked."""

    def __init__(self) -> None:
        self.differ = False
        self.looked = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def changed(self) -> bool:
        self._loop.call_soon_threadsafe(self.looked.set)
        return self.differ


async def test_a_log_beside_the_bundles_is_no_reason_to_read_them_again(tmp_path: Path) -> None:
    """Each reload writes a line, which would be the next one's reason."""
    bundles, reloaded = CountedBundles(), asyncio.Event()
    reloader = Reloader(bundles, KeyRing(None), published=lambda report: reloaded.set())
    tasks = [asyncio.create_task(work) for work in (reloader.run(), reloader.watch_bundles(tmp_path))]
    try:
        async with asyncio.timeout(30):
            while not bundles.looked.is_set():  # until the watch has begun
                (tmp_path / "serve.log").write_text(f"{asyncio.get_running_loop().time()}")
                await asyncio.sleep(0)
            assert not reloaded.is_set()
            bundles.differ = True
            while not reloaded.is_set():
                (tmp_path / "bundle.json").write_text(f"{asyncio.get_running_loop().time()}")
                await asyncio.sleep(0)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class BrokenBundles(NoBundles):
    """A disk that fails whenever it is asked, until it is well again."""

    def __init__(self) -> None:
        self.broken = True
        self.num_looks = self.num_reloads = 0

    def changed(self) -> bool:
        self.num_looks += 1
        if self.broken:
            raise OSError("Stale file handle")
        return True

    def reload(self) -> ReloadReport:
        self.num_reloads += 1
        if self.broken:
            raise OSError("Stale file handle")
        return ReloadReport()


@asynccontextmanager
async def in_background(*works: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(work) for work in works]
    try:
        async with asyncio.timeout(30):
            yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_reload_that_fails_is_not_the_last(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One error of a disk must not keep the keys that are revoked afterwards valid until the next restart."""
    path = tmp_path / "keys.json"
    write_keys(path, [Key("revoked", digest("revoked"))])
    keys, bundles, reloaded = KeyRing(path), BrokenBundles(), asyncio.Event()
    reloader = Reloader(bundles, keys, published=lambda report: reloaded.set())
    async with in_background(reloader.run()):
        write_keys(path, [])
        while not bundles.num_reloads:
            reloader.ask()
            await asyncio.sleep(0)
        assert keys.find("revoked") is None  # although the bundles failed
        bundles.broken = False
        while not reloaded.is_set():
            reloader.ask()
            await asyncio.sleep(0)
    assert "a reload failed" in caplog.text


async def test_a_look_that_fails_is_not_the_last(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The watch goes on: a bundle that comes later is loaded."""
    bundles, reloaded = BrokenBundles(), asyncio.Event()
    reloader = Reloader(bundles, KeyRing(None), published=lambda report: reloaded.set())
    async with in_background(reloader.run(), reloader.watch_bundles(tmp_path)):
        while not reloaded.is_set():
            bundles.broken = bundles.num_looks == 0
            (tmp_path / "bundle.json").write_text(f"{asyncio.get_running_loop().time()}")
            await asyncio.sleep(0)
    assert "could not be checked for changes" in caplog.text


async def test_a_reload_tells_which_bundle_is_shadowed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Else nobody would know why the bundle that was copied there does not serve."""
    write_bundle(tmp_path / "new", name="pt-en", version="2")
    write_bundle(tmp_path / "old", name="pt-en", version="1")
    catalog = open_catalog(tmp_path)
    await Reloader(catalog, KeyRing(None), published=lambda report: None).reload()
    catalog.close()
    assert "bundle shadowed: pt-en 1 does not serve pt to en, because pt-en 2 is newer" in caplog.text
