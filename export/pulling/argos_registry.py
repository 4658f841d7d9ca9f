"""The index of Argos Translate: packages with a CTranslate2 model and its SentencePiece files, zipped."""

from collections.abc import Sequence
from typing import Any

from dragoman.export.pulling.fetching import Fetcher
from dragoman.export.pulling.releases import Release, RemoteFile, expect, find_pair, language, version_key

INDEX = "https://raw.githubusercontent.com/argosopentech/argospm-index/main/index.json"


class ArgosRegistry:
    name = "argos"

    def __init__(self, fetcher: Fetcher, mirror: str | None = None) -> None:
        self._fetcher = fetcher
        base = mirror.rstrip("/") if mirror else INDEX
        self._address = base if base.endswith(".json") else f"{base}/index.json"

    def releases(self) -> Sequence[Release]:
        what = f"the registry {self._address}"
        newest: dict[str, Release] = {}
        for package in expect(self._fetcher.read_json(self._address), list, what):
            release = _release(expect(package, dict, what), what)
            old = newest.get(release.pair) if release else None
            if release and (old is None or version_key(release.release) > version_key(old.release)):
                newest[release.pair] = release
        return [newest[pair] for pair in sorted(newest)]

    def find(self, pair: str) -> Release:
        return find_pair(self.releases(), pair, f"the registry {self._address}")


def _release(package: dict[str, Any], what: str) -> Release | None:
    """None for what is no translation model, or cannot be downloaded by HTTP."""
    links = [link for link in package.get("links") or () if str(link).startswith(("https://", "http://"))]
    if package.get("type", "translate") != "translate" or not links:
        return None
    version = str(package.get("package_version") or "")
    source, target = (language(expect(package.get(key), str, what)) for key in ("from_code", "to_code"))
    return Release(
        registry="argos",
        source=source,
        target=target,
        kind="ctranslate2",
        release=version,
        licence="unknown",  # the index says nothing; some packages have a README that does
        origin=links[0],
        architecture="ctranslate2",
        files=(RemoteFile(links[0], f"{source}_{target}.argosmodel"),),
    )
