"""Where downloads lie, and locks, so that two pulls at once do not spoil one another.

Everything in the cache can be deleted at any time. A lock is the kernel's, so it ends with its process, however that
ends.
"""

import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from dragoman.export.pulling.fetching import disk_errors
from dragoman.export.pulling.releases import Release, RemoteFile


def default_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dragoman"


class CacheFolder:
    def __init__(self, path: Path) -> None:
        self.path = path

    def make(self) -> None:
        with disk_errors(self.path):
            (self.path / "downloads").mkdir(parents=True, exist_ok=True)

    def place_of(self, file: RemoteFile) -> Path:
        """By address: registries give every version of a file one of its own."""
        folder = self.path / "downloads" / hashlib.sha256(file.url.encode()).hexdigest()[:16]
        with disk_errors(self.path):
            folder.mkdir(exist_ok=True)
        return folder / (file.url.rpartition("/")[2].partition("?")[0] or "file")

    def unpacked(self, release: Release) -> Path:
        return self.path / f"unpacked-{release.registry}-{release.pair}"

    @contextmanager
    def locked(self, release: Release, waiting: Callable[[], None]) -> Iterator[None]:
        path = self.path / f"{release.registry}-{release.pair}.lock"
        with disk_errors(self.path):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        with _held(descriptor, waiting):
            yield


@contextmanager
def folder_locked(folder: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """The folder itself is locked: no file of ours is left among the bundles."""
    with disk_errors(folder):
        descriptor = os.open(folder, os.O_RDONLY)
    with _held(descriptor, waiting):
        yield


@contextmanager
def _held(descriptor: int, waiting: Callable[[], None]) -> Iterator[None]:
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
