"""Pulls as `dragoman pull` makes them, with an importer that needs no model: it writes a bundle of the tests' own."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from dragoman.export.pulling.cache_folder import CacheFolder
from dragoman.export.pulling.fetching import Advance, Fetcher, open_client
from dragoman.export.pulling.importer_table import Importer
from dragoman.export.pulling.mozilla_registry import MozillaRegistry
from dragoman.export.pulling.puller import Outcome, Places, Puller
from dragoman.export.pulling.releases import Registry, RemoteFile
from dragoman.service.bundles.manifest import Bundle
from tests.bundles.fakes import write_bundle
from tests.pulling.published import MODEL, Published


class Listener:
    def __init__(self) -> None:
        self.sentences: list[str] = []

    def say(self, sentence: str) -> None:
        self.sentences.append(sentence)

    def downloading(self, file: RemoteFile) -> Advance:
        return lambda done, total: None


def import_fake(folder: Path, out: Path, pair: Any, precision: Any, replace: bool, announce: Any) -> Bundle:
    """Only where the model is exactly what was published."""
    (model,) = folder.glob("model.*.bin")
    assert model.read_bytes() == MODEL
    return write_bundle(out, pairs=[pair])


class Bench:
    """One cache, one folder of bundles, and the pulls into it."""

    def __init__(self, published: Published, folder: Path) -> None:
        self.published, self.folder = published, folder
        self.to, self.cache = folder / "bundles", folder / "cache"
        self.pauses: list[float] = []
        self.listener = Listener()
        self.importer: Importer = import_fake
        self.free: Callable[[Path], int] = lambda path: 10**12

    def fetcher(self, seconds: float = 10.0) -> Fetcher:
        client = open_client(timeout=httpx.Timeout(seconds))
        return Fetcher(client, sleep=self.pauses.append, free=self.free, tries=3)

    def pull(self, *pairs: str, registry: Registry | None = None, seconds: float = 10.0) -> list[Outcome]:
        fetcher = self.fetcher(seconds)
        chosen = registry or MozillaRegistry(fetcher, self.published.url)
        places = Places(self.to, CacheFolder(self.cache))
        puller = Puller(chosen, fetcher, places, self.listener, importer_of=lambda kind: self.importer)
        return puller.pull_all(pairs)

    def problem(self, *pairs: str, **options: Any) -> str:
        """The sentence of a pull that fails, and leaves no trace among the bundles."""
        (outcome,) = self.pull(*(pairs or ("pt-en",)), **options)
        assert outcome.failed
        assert not self.to.is_dir() or list(self.to.iterdir()) == []
        assert not list(self.cache.glob("unpacked-*"))
        assert "\n" not in outcome.problem
        return outcome.problem

    def succeeds(self) -> None:
        (outcome,) = self.pull("pt-en")
        assert outcome.result == "installed", outcome.problem
        assert [path.name for path in self.to.iterdir()] == ["pt-en"]
