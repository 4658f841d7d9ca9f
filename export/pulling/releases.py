"""What a registry publishes, in one form for all of them: releases of a pair, with files, sizes and hashes."""

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from dragoman.export.pulling import PullError

ModelKind = Literal["firefox", "marian", "ctranslate2"]


@dataclass(frozen=True)
class RemoteFile:
    """One file to download; sizes and hashes are None where the registry publishes none."""

    url: str
    name: str  # as the importer wants it, unpacked
    packed_size: int | None = None
    packed_sha256: str | None = None
    size: int | None = None
    sha256: str | None = None


@dataclass(frozen=True)
class Release:
    """One model that can be pulled."""

    registry: str
    source: str
    target: str
    kind: ModelKind
    release: str  # changes whenever the model does
    licence: str
    origin: str  # where a reader finds it
    architecture: str = ""
    files: tuple[RemoteFile, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def pair(self) -> str:
        return f"{self.source}-{self.target}"

    @property
    def size(self) -> int | None:
        """Bytes, unpacked where that is published; None where nothing is."""
        known = [file.size or file.packed_size or 0 for file in self.files]
        return sum(known) or None


class Registry(Protocol):
    name: str

    def releases(self) -> Sequence[Release]:
        """The newest release of every pair; files may be left out where each needs a question of its own."""
        ...

    def find(self, pair: str) -> Release:
        """The newest release of a pair, with its files."""
        ...


def language(code: str) -> str:
    """A registry's code as bundles write it: `zh_hant` is `zh-Hant`."""
    first, *rest = re.split(r"[-_]", code)
    return "-".join([first.lower(), *(part.title() if len(part) == 4 else part.upper() for part in rest)])


def same_pair(one: str, other: str) -> bool:
    return _plain(one) == _plain(other)


def _plain(pair: str) -> str:
    return pair.strip().lower().replace("_", "-")


def find_pair(releases: Sequence[Release], pair: str, registry: str) -> Release:
    for release in releases:
        if same_pair(release.pair, pair):
            return release
    raise PullError(f"{registry} has no model for {pair}{_offer(pair, (release.pair for release in releases))}")


def _offer(pair: str, known: Iterable[str]) -> str:
    """Near ones: the other direction and those that share a language come before those that look alike."""
    sides, pairs = set(_plain(pair).split("-")), sorted(set(known))
    sharing = [each for each in pairs if set(_plain(each).split("-")) == sides]
    close = [each for each in difflib.get_close_matches(_plain(pair), pairs, n=4, cutoff=0.5) if each not in sharing]
    near = [*sharing, *close][:4]
    return f"; near ones are {', '.join(near)}" if near else "; `dragoman pull --list` shows what it has"


def version_key(version: str) -> tuple[Any, ...]:
    """Mozilla's versions: 3.0 is newer than 3.0a2, which is newer than 2.9."""
    found = re.fullmatch(r"(\d+)(?:\.(\d+))?(?:\.(\d+))?(?:([ab])(\d+))?", version)
    if found is None:
        return ((-1,), 0, 0)
    numbers = tuple(int(number or 0) for number in found.groups()[:3])
    stage = {"a": 0, "b": 1, None: 2}[found[4]]
    return (numbers, stage, int(found[5] or 0))


def expect(record: object, kind: type, what: str) -> Any:
    """A registry may answer anything; what it lacks is said, instead of a traceback."""
    if not isinstance(record, kind):
        raise PullError(f"{what} is not what this version of Dragoman can read: upgrade it, or name another --mirror")
    return record
