"""Which bundles there are, and which of them serves a pair: read them, offer them, replace them, take them away.

A bundle serves only after its golden check (`golden.py`). Without a bound on memory all bundles are loaded when they
are found. With one they are offered when their files have been checked, and loaded at their first use (`loading.py`).
A new version replaces one that is loaded after its own check; the old one finishes the requests that it has begun. If
the new one fails, the old one goes on serving. Engines and tokenizers are opened by functions that are passed in; when
to look for changes is decided by the server.
"""

import hashlib
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from dragoman.service.bundles.manifest import Bundle, BundleError, read_bundle
from dragoman.service.catalog.folders import Signature, folders_in, may_hold_bundle, signature
from dragoman.service.catalog.golden import check_golden
from dragoman.service.catalog.loading import Loader, LoadObserver, OfferGoneError, SilentLoadObserver
from dragoman.service.catalog.routes import Route, Shadow, choose, ways_between
from dragoman.service.catalog.served import BundleStatus, Codes, Hop, Lease, Leg, Offer, Served, Tokenizer
from dragoman.service.engine.loop import Engine
from dragoman.service.language_codes import closest

Side = Literal["source", "target"]


class NoRouteError(LookupError):
    """Neither one bundle nor two in a row serve this pair."""


@dataclass(frozen=True)
class ReloadReport:
    """What a reload changed; bundles are named by name and version."""

    loaded: tuple[str, ...] = ()
    unloaded: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()  # a sentence for each bundle that could not be loaded
    unlisted: tuple[str, ...] = ()  # a sentence for each root that could not be listed
    shadowed: tuple[str, ...] = ()  # a sentence for each pair that a bundle does not serve since this reload
    offered: tuple[str, ...] = ()  # to be loaded at the first use

    def __bool__(self) -> bool:
        return bool(self.loaded or self.unloaded or self.failed or self.unlisted or self.offered)


@dataclass
class _Place:
    """One bundle folder: what was last seen there, and what is offered from it."""

    signature: Signature | None = None
    offer: Offer | None = None
    failed: bool = False
    pinned: Offer | None = None  # kept in memory, because its files are no longer there


@dataclass
class _Changes:
    """A reload report while the reload runs."""

    loaded: list[str] = field(default_factory=list)
    unloaded: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    unlisted: list[str] = field(default_factory=list)
    offered: list[str] = field(default_factory=list)

    def report(self, shadowed: Sequence[str]) -> ReloadReport:
        lists = (self.loaded, self.unloaded, self.failed, self.unlisted, shadowed, self.offered)
        return ReloadReport(*map(tuple, lists))


class Catalog:
    def __init__(
        self,
        roots: Sequence[Path],
        open_engine: Callable[[Bundle], Engine],
        open_tokenizer: Callable[[Bundle], Tokenizer],
        pivot: bool = True,
        max_bytes: int | None = None,
        cost: Callable[[Bundle], int] = lambda bundle: 0,
        observer: LoadObserver | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`roots` hold bundle folders, or are bundles. Where two bundles of like age serve one pair, the earlier root
        wins, then the name that sorts first. `open_engine` gives an engine that is not started yet. With `max_bytes`
        bundles are loaded at their first use, and let go when others need the room; `cost` says what one takes."""
        self._roots = tuple(roots)
        self._open_engine, self._open_tokenizer, self._pivot = open_engine, open_tokenizer, pivot
        self._at_first_use, self._cost, self._clock = max_bytes is not None, cost, clock
        self._observer = observer or SilentLoadObserver()
        self._max_bytes = max_bytes
        self._loader = self._new_loader()
        self._places: dict[Path, _Place] = {}
        self._found: list[Path] = []  # where bundles were when the last reload began, in order
        self._ways: dict[Codes, tuple[Leg, ...]] = {}
        self._routes: tuple[Route, ...] = ()
        self._shadows: tuple[Shadow, ...] = ()
        self._codes: dict[Side | None, frozenset[str]] = {}  # the languages on each side of a pair, and all
        self._publishing = threading.Lock()  # one choice at a time of which bundle serves which pair
        self._reloading = threading.Lock()  # one reload at a time; guards _places and _found

    def _new_loader(self) -> Loader:
        return Loader(self._open, self._max_bytes, self._observer, lambda offer: self._publish(), self._clock)

    # Asking

    def bundles(self) -> list[Bundle]:
        """The bundles that serve at least one pair, by name, loaded or not."""
        return [offer.bundle for offer in self._offers()]

    def statuses(self) -> list[BundleStatus]:
        now = self._clock()
        return [
            BundleStatus(
                offer.bundle,
                offer.state,
                offer.num_bytes,
                None if offer.used_at is None else max(0.0, now - offer.used_at),
                offer.problem,
            )
            for offer in self._offers()
        ]

    def served(self) -> list[Served]:
        """The bundles that serve at least one pair and are in memory."""
        return [served for offer in self._offers() if (served := offer.served) is not None]

    def _offers(self) -> list[Offer]:
        unique = {id(leg.offer): leg.offer for legs in self._ways.values() for leg in legs}
        return sorted(unique.values(), key=lambda offer: (offer.bundle.name, offer.bundle.version))

    def memory(self) -> tuple[int, int]:
        """How many bundles are in memory, and their bytes as estimated."""
        return len(self._loader.loaded()), self._loader.held_bytes()

    def routes(self) -> list[Route]:
        """Every pair that can be translated, and the language in between, if any."""
        return list(self._routes)

    def shadows(self) -> list[Shadow]:
        """The pairs that a bundle does not serve, because another bundle does."""
        return list(self._shadows)

    def code(self, code: str, side: Side | None = None) -> str:
        """A language as the bundles name it: letters large or small, and the nearest where none has the region. With
        `side` those come first that are on this side of a pair."""
        codes = self._codes
        return closest(code, codes.get(side, ())) or closest(code, codes.get(None, ())) or code

    def lease(self, source: str, target: str) -> Lease:
        """The hops from `source` to `target`; their engines run at least until the lease ends. It may wait: not for the
        event loop."""
        while True:
            try:
                return self.lease_now([(source, target)]) or self.lease_soon([(source, target)]).result()
            except OfferGoneError:
                continue

    def lease_now(self, pairs: Sequence[Codes]) -> Lease | None:
        """The hops of all these pairs; None if a bundle must be loaded first."""
        loader = self._loader
        legs, offers = self._find(pairs)
        served = loader.take(offers)
        return None if served is None else _lease(loader, legs, offers, served)

    def lease_soon(self, pairs: Sequence[Codes]) -> "Future[Lease]":
        """The same when all are loaded, which happens on other threads. It fails with an error of `loading.py`."""
        loader = self._loader
        legs, offers = self._find(pairs)
        promise: Future[Lease] = Future()
        loaded = loader.wait(offers)

        def pass_on(done: "Future[tuple[Served, ...]]") -> None:
            if not promise.set_running_or_notify_cancel():
                if not done.cancelled() and done.exception() is None:
                    loader.release(offers)
            elif (error := done.exception()) is not None:
                promise.set_exception(error)
            else:
                promise.set_result(_lease(loader, legs, offers, done.result()))

        promise.add_done_callback(lambda own: loaded.cancel() if own.cancelled() else None)
        loaded.add_done_callback(pass_on)
        return promise

    def _find(self, pairs: Sequence[Codes]) -> tuple[dict[Codes, tuple[Leg, ...]], list[Offer]]:
        ways, legs = self._ways, {}
        for pair in pairs:
            if pair not in ways:
                raise NoRouteError(f"no bundle translates {pair[0]} to {pair[1]}")
            legs[pair] = ways[pair]
        return legs, list(dict.fromkeys(leg.offer for way in legs.values() for leg in way))

    # Changing

    def changed(self) -> bool:
        """Whether the files differ from those last looked at; a cheap scan of names, sizes and times."""
        with self._reloading:
            seen = {path: place.signature for path, place in self._places.items()}
            return {path: signature(path) for path in self._folders(_Changes())} != seen

    def reload(self) -> ReloadReport:
        """Find new bundles, replace changed ones, take missing ones away, retry failed ones. Slow: call it on a
        thread."""
        with self._reloading:
            changes, before = _Changes(), set(map(str, self._shadows))
            # Listed once: a file system that fails later must not come between a new bundle and the old one's leave.
            self._found = self._folders(changes)
            for path in self._found:
                place = self._places.setdefault(path, _Place())
                seen = signature(path)
                if seen != place.signature or place.failed:
                    place.signature = seen
                    self._look_at(path, place, changes)
            for path in [path for path in self._places if path not in self._found]:
                place = self._places.pop(path)
                if place.offer:
                    self._publish()
                    changes.unloaded.append(place.offer.label)
                    self._withdraw(place, place.offer)
            return changes.report([shadow for shadow in map(str, self._shadows) if shadow not in before])

    def close(self, drain: bool = True) -> None:
        """Stop every engine; with `drain`, after they have finished their jobs. A reload begins anew."""
        with self._reloading:
            self._places.clear()
            self._publish()
            loader, self._loader = self._loader, self._new_loader()
        loader.close(drain)

    def _folders(self, changes: _Changes) -> list[Path]:
        found: list[Path] = []
        for root in self._roots:
            try:
                missing = not root.is_dir()
                found += [] if missing else self._bundles_in(root)
            except OSError as error:
                missing = True
                changes.unlisted.append(f"the bundles in {root} could not be listed: {error}")
            if missing:  # a volume that is away for a moment does not unload its bundles
                found += sorted(path for path in self._places if path == root or path.parent == root)
        return found

    def _bundles_in(self, root: Path) -> list[Path]:
        return [path for path in folders_in(root) if path in self._places or may_hold_bundle(path)]

    def _look_at(self, path: Path, place: _Place, changes: _Changes) -> None:
        self._keep_loaded(place)
        try:
            bundle = read_bundle(path)
            identity = _identity(bundle)
            if place.offer is None or place.offer.identity != identity:
                self._replace(place, Offer(bundle, identity, place.signature or (), self._cost(bundle)), changes)
            elif place.offer.problem is not None:
                place.offer.problem = None  # whoever asks next tries again
                self._publish()
            place.failed = False
        except Exception as error:  # a foreign file can fail in any way; the other bundles must go on serving
            place.failed = True
            changes.failed.append(_sentence(path, error))
            return
        self._let_go_again(place)

    def _keep_loaded(self, place: _Place) -> None:
        """Its files may be gone: what is in memory must stay there until a new one is proven."""
        if place.pinned is None and place.offer is not None and self._loader.pin(place.offer):
            place.pinned = place.offer

    def _let_go_again(self, place: _Place) -> None:
        if place.pinned is not None:
            self._loader.release([place.pinned])
            place.pinned = None

    def _replace(self, place: _Place, offer: Offer, changes: _Changes) -> None:
        """A bundle that is in memory is replaced when the new one is proven; otherwise it is proven at its first use,
        because the files of the old one are no longer there."""
        if self._at_first_use and place.pinned is None:
            self._loader.offer(offer)
            changes.offered.append(offer.label)
        else:
            began = self._clock()
            offer.served = self._open(offer)
            self._observer.bundle_loaded(self._clock() - began)
            self._loader.adopt(offer)
            changes.loaded.append(offer.label)
        old, place.offer = place.offer, offer
        self._publish()
        if old is not None:
            self._withdraw(place, old)

    def _withdraw(self, place: _Place, offer: Offer) -> None:
        self._loader.withdraw(offer)
        self._let_go_again(place)

    def _open(self, offer: Offer) -> Served:
        """An engine that passed the golden check; one that fails is stopped."""
        bundle = offer.bundle
        self._check_unchanged(offer)
        tokenizer = self._open_tokenizer(bundle)
        engine = self._open_engine(bundle)
        engine.start()
        try:
            check_golden(bundle, tokenizer, engine)
            self._check_unchanged(offer)
        except BaseException:
            engine.stop(drain=False)
            raise
        return Served(bundle, tokenizer, engine, offer.identity)

    def _check_unchanged(self, offer: Offer) -> None:
        """Raise if the files are no longer those that were checked; a copy with other times is the same bundle."""
        path = offer.bundle.path
        if not self._at_first_use or signature(path) == offer.signature:
            return
        if _identity(read_bundle(path)) != offer.identity:
            raise BundleError(f"bundle {path} changes while it is loaded: it is loaded again when it is complete")

    def _publish(self) -> None:
        """Choose again which bundle serves which pair; callers see the change in one step."""
        with self._publishing:
            order = {path: number for number, path in enumerate(self._found)}
            places = sorted(self._places.items(), key=lambda item: order.get(item[0], len(order)))
            offers = {id(place.offer.bundle): place.offer for _, place in places if place.offer is not None}
            # One that could not be loaded serves only what no other bundle does: whoever asks for that tries again.
            serving, shadows = choose([offer.bundle for offer in offers.values() if offer.problem is None])
            failed, _ = choose([offer.bundle for offer in offers.values() if offer.problem is not None])
            legs = {codes: _leg(offers[id(bundle)], codes) for codes, bundle in {**failed, **serving}.items()}
            ways = ways_between(legs, self._pivot)
            routes = [(*pair, ways[pair][0].pair.target if len(ways[pair]) > 1 else None) for pair in sorted(ways)]
            sources, targets = (frozenset(pair[side] for pair in ways) for side in (0, 1))
            self._codes = {"source": sources, "target": targets, None: sources | targets}
            self._ways, self._routes, self._shadows = ways, tuple(routes), tuple(shadows)


def _lease(
    loader: Loader, legs: dict[Codes, tuple[Leg, ...]], offers: Sequence[Offer], served: Sequence[Served]
) -> Lease:
    loaded = dict(zip(offers, served, strict=True))
    ways = {codes: tuple([Hop(loaded[leg.offer], leg.pair) for leg in way]) for codes, way in legs.items()}
    return Lease(ways, lambda: loader.release(offers))


def _leg(offer: Offer, codes: Codes) -> Leg:
    return Leg(offer, next(pair for pair in offer.bundle.pairs if (pair.source, pair.target) == codes))


def _identity(bundle: Bundle) -> str:
    digest = hashlib.sha256(bundle.to_json().encode()).hexdigest()[:16]
    return f"{bundle.name}@{bundle.version}#{digest}"


def _sentence(path: Path, error: Exception) -> str:
    return str(error) if isinstance(error, BundleError) else f"bundle {path} could not be loaded: {error}"
