"""Pull one pair or several: download, unpack, import, prove, and give the bundle its name in one step.

In the folder of bundles everything is made under `.pulling-PAIR`, which servers ignore. Whatever ends a pull, no half
bundle has a name; the next pull removes what was left and goes on with what was downloaded.
"""

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from dragoman.export import ExportError
from dragoman.export.publish import put_in_place
from dragoman.export.pulling import PullError
from dragoman.export.pulling.cache_folder import CacheFolder, folder_locked
from dragoman.export.pulling.fetching import Advance, Fetcher, disk_errors, sha256_of
from dragoman.export.pulling.importer_table import Importer, find_importer
from dragoman.export.pulling.releases import ModelKind, Registry, Release, RemoteFile
from dragoman.export.pulling.unpacking import unpack
from dragoman.service.bundles.manifest import MANIFEST, Bundle, BundleError, Precision, read_bundle

RELEASE_FILE = "release.json"  # beside the unpacked model: where it comes from, for importers that want to know
_ROOM_FOR_A_BUNDLE = 4  # times the model: graphs, a reference to check against, and the bundle itself


class Watcher(Protocol):
    """Who is told what happens."""

    def say(self, sentence: str) -> None: ...

    def downloading(self, file: RemoteFile) -> Advance: ...


@dataclass(frozen=True)
class Outcome:
    pair: str
    result: str  # installed, replaced, already there, failed
    release: Release | None = None
    problem: str = ""
    size: int = 0

    @property
    def failed(self) -> bool:
        return self.result == "failed"


@dataclass(frozen=True)
class Places:
    to: Path
    cache: CacheFolder


class Puller:
    def __init__(
        self,
        registry: Registry,
        fetcher: Fetcher,
        places: Places,
        watcher: Watcher,
        importer_of: Callable[[ModelKind], Importer] = find_importer,
        precision: Precision = "int8",
    ) -> None:
        self._registry, self._fetcher, self._places, self._watcher = registry, fetcher, places, watcher
        self._importer_of, self._precision = importer_of, precision

    def pull_all(self, pairs: Sequence[str]) -> list[Outcome]:
        """One after another; what is wrong with one pair does not keep the others away."""
        outcomes = []
        for pair in pairs:
            try:
                outcomes.append(self.pull(pair))
            except (PullError, ExportError, BundleError) as error:
                self._watcher.say(f"{pair}: {error}")
                outcomes.append(Outcome(pair, "failed", problem=str(error)))
        return outcomes

    def pull(self, pair: str) -> Outcome:
        _make_folder(self._places.to)
        self._places.cache.make()
        release = self._registry.find(pair)
        old = installed(self._places.to / release.pair)
        if old is not None and _release_of(old) == (release.registry, release.release):
            return Outcome(release.pair, "already there", release, size=_bytes(old))
        importer = self._importer_of(release.kind)  # before anything is downloaded: it may be missing
        cache = self._places.cache
        with cache.locked(release, lambda: self._watcher.say(f"{pair}: waiting for another pull of it")):
            unpacked = self._unpacked(release)
            try:
                bundle = self._import(importer, release, unpacked)
            finally:
                shutil.rmtree(unpacked, ignore_errors=True)
        return Outcome(release.pair, "installed" if old is None else "replaced", release, size=_bytes(bundle))

    def _unpacked(self, release: Release) -> Path:
        """All files of the release as the importer wants them, in a folder of their own."""
        folder = self._places.cache.unpacked(release)
        shutil.rmtree(folder, ignore_errors=True)
        self._fetcher.need_room(folder.parent, 2 * (release.size or 0))
        with disk_errors(folder.parent):
            folder.mkdir()
        try:
            for file in release.files:
                target = self._places.cache.place_of(file)
                unpack(file, self._fetcher.download(file, target, self._watcher.downloading(file)), folder)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        (folder / RELEASE_FILE).write_text(json.dumps(_origin(release, folder), indent=2) + "\n", "utf-8")
        return folder

    def _import(self, importer: Importer, release: Release, folder: Path) -> Bundle:
        to, pair = self._places.to, release.pair
        self._watcher.say(f"{pair}: importing {release.architecture or release.kind}")
        with folder_locked(to, lambda: self._watcher.say(f"{pair}: waiting for another pull into {to}")):
            work = to / f".pulling-{pair}"
            shutil.rmtree(work, ignore_errors=True)
            self._fetcher.need_room(to, _ROOM_FOR_A_BUNDLE * (release.size or 0))
            try:
                with disk_errors(to):
                    work.mkdir()
                made = self._made(importer, release, folder, work / pair)
                put_in_place(made.path, to / pair, replace_old=True)
            finally:
                shutil.rmtree(work, ignore_errors=True)
        return read_bundle(to / pair, check_hashes=False)

    def _made(self, importer: Importer, release: Release, folder: Path, out: Path) -> Bundle:
        """The importer's bundle, with its origin in the manifest."""
        sides = (release.source, release.target)
        try:
            with disk_errors(self._places.to, only_full=True):
                importer(folder, out, sides, self._precision, False, self._watcher.say)
        except (PullError, ExportError, BundleError):
            raise
        except Exception as error:  # a foreign file can fail in any way; the other pairs must be pulled all the same
            raise PullError(f"the model of {release.origin} cannot be imported ({error}): take another one") from error
        bundle = read_bundle(out)
        if sides not in [(pair.source, pair.target) for pair in bundle.pairs]:
            raise PullError(f"the model of {release.origin} does not translate {release.pair}: take another one")
        bundle = replace(bundle, training=_with_origin(bundle, _origin(release, folder)))
        (out / MANIFEST).write_text(bundle.to_json(), "utf-8")
        return bundle


def installed(path: Path) -> Bundle | None:
    """The bundle that has this name; None for none, and for one that cannot be read, which a pull replaces."""
    try:
        return read_bundle(path, check_hashes=False) if (path / MANIFEST).is_file() else None
    except (BundleError, OSError):
        return None


def _release_of(bundle: Bundle) -> tuple[object, object]:
    origin = bundle.training.get("origin")
    return (origin.get("registry"), origin.get("release")) if isinstance(origin, dict) else (None, None)


def _with_origin(bundle: Bundle, origin: dict[str, object]) -> dict[str, object]:
    """What the importer found in the files stays; the registry knows the rest."""
    known = bundle.training.get("origin")
    return {**bundle.training, "origin": {**(known if isinstance(known, dict) else {}), **origin}}


def _origin(release: Release, folder: Path) -> dict[str, object]:
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return {
        "registry": release.registry,
        "release": release.release,
        "architecture": release.architecture,
        "licence": release.licence,
        "address": release.origin,
        "files": {name: sha256_of(folder / name) for name in names if name != RELEASE_FILE},
        **release.facts,
    }


def _bytes(bundle: Bundle) -> int:
    return sum(record.bytes for record in bundle.files.values())


def _make_folder(to: Path) -> None:
    try:
        to.mkdir(parents=True, exist_ok=True)
        probe = to / ".pulling-probe"
        probe.mkdir(exist_ok=True)
        probe.rmdir()
    except OSError as error:
        raise PullError(f"{to} cannot be written ({error.strerror}): choose another folder with --to") from error
