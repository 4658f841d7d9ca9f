"""Which bundle serves which pair, and the way through a third language where no bundle serves a pair itself.

Where two bundles serve one pair, the newer version serves. Where neither version is newer (see `versions.py`), the
bundle that was found first serves.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from dragoman.service.bundles.manifest import Bundle
from dragoman.service.catalog.served import Codes
from dragoman.service.catalog.versions import age_key

PREFERRED_PIVOT = "en"

Route = tuple[str, str, str | None]  # source, target, pivot
T = TypeVar("T")


@dataclass(frozen=True)
class Shadow:
    """A bundle that does not serve one of its pairs, because another bundle does."""

    bundle: Bundle
    codes: Codes
    by: Bundle

    def __str__(self) -> str:
        source, target = self.codes
        newer = age_key(self.by.version) > age_key(self.bundle.version)
        why = "is newer" if newer else "was found first: neither version is newer"
        return f"{label(self.bundle)} does not serve {source} to {target}, because {label(self.by)} {why}"


def label(bundle: Bundle) -> str:
    return f"{bundle.name} {bundle.version}"


def choose(found: Sequence[Bundle]) -> tuple[dict[Codes, Bundle], list[Shadow]]:
    """The bundle that serves each pair, and the bundles in its shadow; `found` is in the order in which they lie."""
    serving: dict[Codes, Bundle] = {}
    shadows: list[Shadow] = []
    for bundle in sorted(found, key=lambda bundle: age_key(bundle.version), reverse=True):  # a stable sort
        for codes in dict.fromkeys((pair.source, pair.target) for pair in bundle.pairs):
            by = serving.setdefault(codes, bundle)
            if by is not bundle:
                shadows.append(Shadow(bundle, codes, by))
    return serving, shadows


def ways_between(hops: Mapping[Codes, T], pivot: bool) -> dict[Codes, tuple[T, ...]]:
    """The hops of every pair: one, or with `pivot` two with a language between; English where there is a choice."""
    ways: dict[Codes, tuple[T, ...]] = {pair: (hop,) for pair, hop in hops.items()}
    joints = [both for both in itertools.product(hops, hops) if both[0][1] == both[1][0] and both[0][0] != both[1][1]]
    for first, second in sorted(joints, key=lambda both: (both[0][1] != PREFERRED_PIVOT, both)) if pivot else ():
        ways.setdefault((first[0], second[1]), (hops[first], hops[second]))
    return ways
