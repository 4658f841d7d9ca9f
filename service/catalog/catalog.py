"""The bundles that serve: load them, share them between requests, replace them, let them go.

A bundle serves only after its golden check (`golden.py`). A new version replaces the old one after its own check; the
old one finishes the requests that it has begun. If the new one fails, the old one goes on serving. Engines and
tokenizers are opened by functions that are passed in; when to look for changes is decided by the server.
"""

import hashlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dragoman.service.bundles.manifest import Bundle, BundleError, read_bundle
from dragoman.service.catalog.folders import Signature, folders_in, may_hold_bundle, signature
from dragoman.service.catalog.golden import check_golden
from dragoman.service.catalog.routes import Codes, Route, Shadow, choose, label, ways_between
from dragoman.service.catalog.served import Hop, Lease, Served, Tokenizer
from dragoman.service.engine.loop import Engine
from dragoman.service.language_codes import base_language


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

    def __bool__(self) -> bool:
        return bool(self.loaded or self.unloaded or self.failed or self.unlisted)


@dataclass
class _Place:
    """One bundle folder: what was last seen there, and what serves from it."""

    signature: Signature | None = None
    served: Served | None = None
    failed: bool = False


@dataclass
class _Changes:
    """A reload report while the reload runs."""

    loaded: list[str] = field(default_factory=list)
    unloaded: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    unlisted: list[str] = field(default_factory=list)

    def report(self, shadowed: Sequence[str]) -> ReloadReport:
        lists = (self.loaded, self.unloaded, self.failed, self.unlisted, shadowed)
        return ReloadReport(*map(tuple, lists))


class Catalog:
    def __init__(
        self,
        roots: Sequence[Path],
        open_engine: Callable[[Bundle], Engine],
        open_tokenizer: Callable[[Bundle], Tokenizer],
        pivot: bool = True,
    ) -> None:
        """`roots` hold bundle folders, or are bundles. Where two bundles of like age serve one pair, the earlier root
        wins, then the name that sorts first. `open_engine` gives an engine that is not started yet."""
        self._roots = tuple(roots)
        self._open_engine, self._open_tokenizer, self._pivot = open_engine, open_tokenizer, pivot
        self._places: dict[Path, _Place] = {}
        self._found: list[Path] = []  # where bundles were when the last reload began, in order
        self._ways: dict[Codes, tuple[Hop, ...]] = {}
        self._routes: tuple[Route, ...] = ()
        self._shadows: tuple[Shadow, ...] = ()
        self._codes: dict[str, str] = {}  # in small letters -> as the bundles write it
        self._lock = threading.Lock()  # guards _ways and leases; never held while anything slow runs
        self._reloading = threading.Lock()  # one reload at a time; guards _places and _found
        self._retiring: list[threading.Thread] = []

    # Asking

    def bundles(self) -> list[Bundle]:
        """The bundles that serve at least one pair, by name."""
        return [served.bundle for served in self.served()]

    def served(self) -> list[Served]:
        with self._lock:
            unique = {id(hop.served): hop.served for hops in self._ways.values() for hop in hops}
        return sorted(unique.values(), key=lambda served: (served.bundle.name, served.bundle.version))

    def routes(self) -> list[Route]:
        """Every pair that can be translated, and the language in between, if any."""
        return list(self._routes)

    def shadows(self) -> list[Shadow]:
        """The pairs that a loaded bundle does not serve, because another bundle does."""
        return list(self._shadows)

    def code(self, code: str) -> str:
        """A language as the bundles name it: letters large or small, and `pt` for `pt-BR` where none has the region."""
        lowered = code.lower()
        return self._codes.get(lowered) or self._codes.get(base_language(code), code)

    def lease(self, source: str, target: str) -> Lease:
        """The hops from `source` to `target`; their engines run at least until the lease ends."""
        return Lease(self._take(source, target), self._give_back)

    def _take(self, source: str, target: str) -> tuple[Hop, ...]:
        with self._lock:
            hops = self._ways.get((source, target))
            if hops is None:
                raise NoRouteError(f"no bundle translates {source} to {target}")
            for hop in hops:
                hop.served.num_leases += 1
            return hops

    def _give_back(self, hops: Sequence[Hop]) -> None:
        with self._lock:
            for hop in hops:
                hop.served.num_leases -= 1
            idle = {id(hop.served): hop.served for hop in hops if hop.served.retired and not hop.served.num_leases}
        for served in idle.values():
            self._stop(served)

    # Changing

    def changed(self) -> bool:
        """Whether the files differ from those last looked at; a cheap scan of names, sizes and times."""
        with self._reloading:
            seen = {path: place.signature for path, place in self._places.items()}
            return {path: signature(path) for path in self._folders(_Changes())} != seen

    def reload(self) -> ReloadReport:
        """Load new bundles, replace changed ones, unload missing ones, retry failed ones. Slow: call it on a thread."""
        with self._reloading:
            changes, before = _Changes(), set(map(str, self._shadows))
            # Listed once: a file system that fails later must not come between a new bundle and the old one's leave.
            self._found = self._folders(changes)
            for path in self._found:
                place = self._places.setdefault(path, _Place())
                seen = signature(path)
                if seen != place.signature or place.failed:
                    place.signature = seen
                    self._load(path, place, changes)
            for path in [path for path in self._places if path not in self._found]:
                if served := self._places.pop(path).served:
                    self._unload(served, changes)
            return changes.report([shadow for shadow in map(str, self._shadows) if shadow not in before])

    def close(self, drain: bool = True) -> None:
        """Stop every engine; with `drain`, after they have finished their jobs."""
        with self._reloading:
            served = [place.served for place in self._places.values() if place.served]
            self._places.clear()
            with self._lock:
                self._ways, self._routes, self._shadows, self._codes = {}, (), (), {}
                retiring, self._retiring = self._retiring, []
        for each in served:
            each.engine.stop(drain=drain)
        for thread in retiring:
            thread.join()

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

    def _load(self, path: Path, place: _Place, changes: _Changes) -> None:
        try:
            bundle = read_bundle(path)
            identity = _identity(bundle)
            if place.served is None or place.served.identity != identity:
                self._replace(place, self._open(bundle, identity), changes)
            place.failed = False
        except Exception as error:  # a foreign file can fail in any way; the other bundles must go on serving
            place.failed = True
            problem = str(error) if isinstance(error, BundleError) else f"bundle {path} could not be loaded: {error}"
            changes.failed.append(problem)

    def _open(self, bundle: Bundle, identity: str) -> Served:
        """An engine that passed the golden check; one that fails is stopped."""
        tokenizer = self._open_tokenizer(bundle)
        engine = self._open_engine(bundle)
        engine.start()
        try:
            check_golden(bundle, tokenizer, engine)
        except BaseException:
            engine.stop(drain=False)
            raise
        return Served(bundle, tokenizer, engine, identity)

    def _replace(self, place: _Place, served: Served, changes: _Changes) -> None:
        old, place.served = place.served, served
        self._publish()
        changes.loaded.append(label(served.bundle))
        if old is not None:
            self._retire(old)

    def _unload(self, served: Served, changes: _Changes) -> None:
        self._publish()
        changes.unloaded.append(label(served.bundle))
        self._retire(served)

    def _publish(self) -> None:
        """Choose again which bundle serves which pair; callers see the change in one step."""
        order = {path: number for number, path in enumerate(self._found)}
        paths = sorted(self._places, key=lambda path: order.get(path, len(order)))
        loaded = {id(served.bundle): served for path in paths if (served := self._places[path].served)}
        serving, shadows = choose([served.bundle for served in loaded.values()])
        hops = {codes: _hop(loaded[id(bundle)], codes) for codes, bundle in serving.items()}
        ways = ways_between(hops, self._pivot)
        routes = [(*pair, ways[pair][0].pair.target if len(ways[pair]) > 1 else None) for pair in sorted(ways)]
        with self._lock:
            self._ways, self._routes, self._shadows = ways, tuple(routes), tuple(shadows)
            self._codes = {code.lower(): code for pair in ways for code in pair}

    def _retire(self, served: Served) -> None:
        with self._lock:
            served.retired = True
            idle = not served.num_leases
        if idle:
            self._stop(served)

    def _stop(self, served: Served) -> None:
        """On a thread: stopping waits for the decode threads, and the caller may be the event loop."""
        thread = threading.Thread(target=served.engine.stop, kwargs={"drain": True}, name="retire-engine", daemon=True)
        thread.start()
        with self._lock:
            self._retiring = [other for other in self._retiring if other.is_alive()] + [thread]


def _hop(served: Served, codes: Codes) -> Hop:
    return Hop(served, next(pair for pair in served.bundle.pairs if (pair.source, pair.target) == codes))


def _identity(bundle: Bundle) -> str:
    digest = hashlib.sha256(bundle.to_json().encode()).hexdigest()[:16]
    return f"{bundle.name}@{bundle.version}#{digest}"
