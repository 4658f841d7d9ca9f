"""Which bundle serves which pair: load, golden check, hot reload, unload, and the way through a third language.

A bundle serves only after its golden sentences came out right on this machine. A new version replaces the old one after
its own check; the old one finishes what it has begun; a version that fails leaves the old one serving. Engines and
tokenizers are made by whoever builds the catalog. When to look for changes is left to the server.
"""

import hashlib
import itertools
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from dragoman.service.bundles.manifest import MANIFEST, Bundle, BundleError, Golden, Pair, read_bundle, read_golden
from dragoman.service.engine.job import DecodingOptions, DecodingResult, FinishReason, Job
from dragoman.service.engine.loop import Engine

GOLDEN_TOLERANCE = 1e-3  # softmax and norms differ between CPU types
GOLDEN_SECONDS = 60.0
PREFERRED_PIVOT = "en"

Route = tuple[str, str, str | None]  # source, target, pivot
Signature = tuple[tuple[str, int, int, int], ...]  # name, bytes and times of change of every file


class Encoder(Protocol):
    """What the golden check needs of a tokenizer."""

    def encode(self, parts: Sequence[str | int]) -> list[int]: ...


T = TypeVar("T", bound=Encoder)


class CatalogObserver(Protocol):
    """Told what becomes of bundles, on the thread that loads them."""

    def loaded(self, bundle: Bundle) -> None: ...
    def failed(self, path: Path, problem: str) -> None: ...
    def unloaded(self, bundle: Bundle) -> None: ...


class NoRouteError(LookupError):
    """No bundle, nor two in a row, serve this pair."""


@dataclass(eq=False)
class Served(Generic[T]):
    """A bundle that serves, or one that finishes what it has begun."""

    bundle: Bundle
    tokenizer: T
    engine: Engine
    identity: str  # equal only for equal files: a cached answer of another bundle is no answer
    num_leases: int = 0
    retired: bool = False


@dataclass(frozen=True)
class Hop(Generic[T]):
    """One translation step of a route."""

    served: Served[T]
    pair: Pair


@dataclass(frozen=True)
class ReloadReport:
    loaded: tuple[str, ...] = ()  # name and version
    unloaded: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()  # one sentence each

    def __bool__(self) -> bool:
        return bool(self.loaded or self.unloaded or self.failed)


@dataclass
class _Slot(Generic[T]):
    """One bundle directory: what was last seen there, and what serves from it."""

    signature: Signature | None = None
    served: Served[T] | None = None
    failed: bool = False


@dataclass
class _Report:
    loaded: list[str] = field(default_factory=list)
    unloaded: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    def frozen(self) -> ReloadReport:
        return ReloadReport(tuple(self.loaded), tuple(self.unloaded), tuple(self.failed))


class Catalog(Generic[T]):
    def __init__(
        self,
        roots: Sequence[Path],
        open_engine: Callable[[Bundle], Engine],
        open_tokenizer: Callable[[Bundle], T],
        observer: CatalogObserver,
        pivot: bool = True,
    ) -> None:
        """`roots` hold bundle directories, or are bundles; where two serve one pair, the earlier root wins, then the
        name that sorts first. `open_engine` gives an engine that is not started yet."""
        self._roots = tuple(roots)
        self._open_engine, self._open_tokenizer = open_engine, open_tokenizer
        self._observer, self._pivot = observer, pivot
        self._slots: dict[Path, _Slot[T]] = {}
        self._found: list[Path] = []  # where bundles were when a reload began, those that win a pair first
        self._ways: dict[tuple[str, str], tuple[Hop[T], ...]] = {}
        self._routes: tuple[Route, ...] = ()
        self._codes: dict[str, str] = {}  # in small letters -> as the bundles write it
        self._lock = threading.Lock()  # guards _ways and leases; never held while anything slow runs
        self._reloading = threading.Lock()  # one reload at a time; guards _slots and _found
        self._retiring: list[threading.Thread] = []

    # Asking

    def bundles(self) -> list[Bundle]:
        """The bundles that serve at least one pair, by name."""
        return [served.bundle for served in self.served()]

    def served(self) -> list[Served[T]]:
        with self._lock:
            unique = {id(hop.served): hop.served for hops in self._ways.values() for hop in hops}
        return sorted(unique.values(), key=lambda served: (served.bundle.name, served.bundle.version))

    def routes(self) -> list[Route]:
        """Every pair that can be translated, and the language in between, if any."""
        return list(self._routes)

    def code(self, code: str) -> str:
        """A language as the bundles name it: letters large or small, and `pt` for `pt-BR` where none has the region."""
        lowered = code.lower()
        return self._codes.get(lowered) or self._codes.get(lowered.partition("-")[0], code)

    def lease(self, source: str, target: str) -> "Lease[T]":
        """The hops from `source` to `target`; their engines run at least until the lease ends."""
        return Lease(self._take(source, target), self._give_back)

    def _take(self, source: str, target: str) -> tuple[Hop[T], ...]:
        with self._lock:
            hops = self._ways.get((source, target))
            if hops is None:
                raise NoRouteError(f"no bundle translates {source} to {target}")
            for hop in hops:
                hop.served.num_leases += 1
            return hops

    def _give_back(self, hops: Sequence[Hop[T]]) -> None:
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
            seen = {path: slot.signature for path, slot in self._slots.items()}
            return {path: _signature(path) for path in self._directories(_Report())} != seen

    def reload(self) -> ReloadReport:
        """Load what is new, replace what changed, unload what is gone, try again what failed. Slow: not for a loop."""
        with self._reloading:
            report = _Report()
            # Listed once: a file system that fails later must not come between a new bundle and the old one's leave.
            self._found = self._directories(report)
            for path in self._found:
                slot = self._slots.setdefault(path, _Slot())
                signature = _signature(path)
                if signature != slot.signature or slot.failed:
                    slot.signature = signature
                    self._load(path, slot, report)
            for path in [path for path in self._slots if path not in self._found]:
                if served := self._slots.pop(path).served:
                    self._unload(served, report)
            return report.frozen()

    def close(self, drain: bool = True) -> None:
        """Stop every engine; with `drain`, after they have finished what they were given."""
        with self._reloading:
            served = [slot.served for slot in self._slots.values() if slot.served]
            self._slots.clear()
            with self._lock:
                self._ways, self._routes, self._codes = {}, (), {}
                retiring, self._retiring = self._retiring, []
        for each in served:
            each.engine.stop(drain=drain)
        for thread in retiring:
            thread.join()

    def _directories(self, report: _Report) -> list[Path]:
        found: list[Path] = []
        for root in self._roots:
            try:
                away = not root.is_dir()
                found += [] if away else self._bundles_in(root)
            except OSError as error:
                away = True
                report.failed.append(f"the bundles in {root} could not be listed: {error}")
            if away:  # a volume that is away for a moment takes no bundle with it
                found += sorted(path for path in self._slots if path == root or path.parent == root)
        return found

    def _bundles_in(self, root: Path) -> list[Path]:
        return [path for path in directories_in(root) if path in self._slots or _may_hold_bundle(path)]

    def _load(self, path: Path, slot: _Slot[T], report: _Report) -> None:
        try:
            bundle = read_bundle(path)
            identity = _identity(bundle)
            if slot.served is None or slot.served.identity != identity:
                self._replace(slot, self._open(bundle, identity), report)
            slot.failed = False
        except Exception as error:  # a foreign file can fail in any way; what serves must go on serving
            slot.failed = True
            problem = str(error) if isinstance(error, BundleError) else f"bundle {path} could not be loaded: {error}"
            report.failed.append(problem)
            self._observer.failed(path, problem)

    def _open(self, bundle: Bundle, identity: str) -> Served[T]:
        """An engine that has proved itself; nothing of it stays when it has not."""
        tokenizer = self._open_tokenizer(bundle)
        engine = self._open_engine(bundle)
        engine.start()
        try:
            check_golden(bundle, tokenizer, engine)
        except BaseException:
            engine.stop(drain=False)
            raise
        return Served(bundle, tokenizer, engine, identity)

    def _replace(self, slot: _Slot[T], served: Served[T], report: _Report) -> None:
        old, slot.served = slot.served, served
        self._publish()
        report.loaded.append(_label(served.bundle))
        self._observer.loaded(served.bundle)
        if old is not None:
            self._retire(old)

    def _unload(self, served: Served[T], report: _Report) -> None:
        self._publish()
        report.unloaded.append(_label(served.bundle))
        self._observer.unloaded(served.bundle)
        self._retire(served)

    def _publish(self) -> None:
        """Choose anew who serves which pair, in one step for those who ask."""
        order = {path: place for place, path in enumerate(self._found)}
        hops: dict[tuple[str, str], Hop[T]] = {}
        for path in sorted(self._slots, key=lambda path: order.get(path, len(order))):
            if served := self._slots[path].served:
                for pair in served.bundle.pairs:
                    hops.setdefault((pair.source, pair.target), Hop(served, pair))
        ways = _ways(hops, self._pivot)
        routes = [(*pair, ways[pair][0].pair.target if len(ways[pair]) > 1 else None) for pair in sorted(ways)]
        with self._lock:
            self._ways, self._routes = ways, tuple(routes)
            self._codes = {code.lower(): code for pair in ways for code in pair}

    def _retire(self, served: Served[T]) -> None:
        with self._lock:
            served.retired = True
            idle = not served.num_leases
        if idle:
            self._stop(served)

    def _stop(self, served: Served[T]) -> None:
        """Stopping waits for the decode threads, and the caller may be the event loop."""
        thread = threading.Thread(target=served.engine.stop, kwargs={"drain": True}, name="retire-engine", daemon=True)
        thread.start()
        with self._lock:
            self._retiring = [other for other in self._retiring if other.is_alive()] + [thread]


class Lease(Generic[T]):
    """Hops, and the right to them until it is given back."""

    def __init__(self, hops: tuple[Hop[T], ...], give_back: Callable[[Sequence[Hop[T]]], None]) -> None:
        self.hops, self._give_back = hops, give_back

    def __enter__(self) -> tuple[Hop[T], ...]:
        return self.hops

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        self._give_back(self.hops)


def directories_in(root: Path) -> list[Path]:
    """Where bundles may be: in the root, or it is one itself. A name that begins with a dot is left alone, so that a
    bundle can be copied under it and renamed when it is whole."""
    if (root / MANIFEST).is_file():
        return [root]
    return sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))


def check_golden(bundle: Bundle, tokenizer: Encoder, engine: Engine) -> None:
    """Replay the bundle's own sentences: tokens exact, log-probabilities to 1e-3; raise BundleError otherwise."""
    goldens = read_golden(bundle)
    if not goldens:
        raise BundleError(f"bundle {bundle.path} has no golden sentences to prove itself by: export it again")
    for golden in goldens:
        _check_source(bundle, tokenizer, golden)
    late_at = time.monotonic() + GOLDEN_SECONDS
    _replay(bundle, engine, goldens, late_at)
    _replay(bundle, engine, goldens[:1], late_at)  # alone, which is another graph


def _replay(bundle: Bundle, engine: Engine, goldens: Sequence[Golden], late_at: float) -> None:
    options = DecodingOptions(log_probs=True)
    jobs = [Job(golden.source_ids, options) for golden in goldens]
    futures = engine.submit_all(jobs)  # at once: an empty queue takes whatever comes, however short it is
    for number, (golden, future) in enumerate(zip(goldens, futures, strict=True), 1):
        try:
            error = future.exception(max(0.0, late_at - time.monotonic()))
        except TimeoutError:
            raise BundleError(
                f"bundle {bundle.path} needs over {GOLDEN_SECONDS:.0f} s for its golden sentences: not served"
            ) from None
        if error is not None:
            raise BundleError(f"bundle {bundle.path} failed on golden sentence {number}: {error}") from error
        _check_result(bundle, number, golden, future.result())


def _check_source(bundle: Bundle, tokenizer: Encoder, golden: Golden) -> None:
    pairs = [pair for pair in bundle.pairs if (pair.source, pair.target) == (golden.source, golden.target)]
    ids = (*tokenizer.encode([golden.text]), bundle.source_special_ids.eos)
    wanted = [(*pair.source_prefix_ids, *ids) for pair in pairs]
    if golden.source_ids not in wanted:
        raise BundleError(
            f"bundle {bundle.path} has a tokenizer that reads its golden sentences otherwise: export it again"
        )


def _check_result(bundle: Bundle, number: int, golden: Golden, result: DecodingResult) -> None:
    best = result.hypotheses[0] if result.hypotheses else None
    if best is None or best.ids != golden.target_ids or result.finish_reason is not FinishReason.EOS:
        raise BundleError(f"bundle {bundle.path} translates golden sentence {number} otherwise here: not served")
    if len(best.log_probs) != len(golden.log_probs):
        raise BundleError(
            f"bundle {bundle.path} has the wrong number of scores in golden sentence {number}: export it again"
        )
    gap = max((abs(here - there) for here, there in zip(best.log_probs, golden.log_probs, strict=True)), default=0.0)
    if not gap <= GOLDEN_TOLERANCE:
        raise BundleError(
            f"bundle {bundle.path} scores golden sentence {number} otherwise here (by {gap:.4f}): not served"
        )


def _ways(hops: Mapping[tuple[str, str], Hop[T]], pivot: bool) -> dict[tuple[str, str], tuple[Hop[T], ...]]:
    """Every pair's hops: the bundle that serves it, or two with a language between; English where there is a choice."""
    ways: dict[tuple[str, str], tuple[Hop[T], ...]] = {pair: (hop,) for pair, hop in hops.items()}
    joints = [both for both in itertools.product(hops, hops) if both[0][1] == both[1][0] and both[0][0] != both[1][1]]
    for first, second in sorted(joints, key=lambda both: (both[0][1] != PREFERRED_PIVOT, both)) if pivot else ():
        ways.setdefault((first[0], second[1]), (hops[first], hops[second]))
    return ways


def _identity(bundle: Bundle) -> str:
    digest = hashlib.sha256(bundle.to_json().encode()).hexdigest()[:16]
    return f"{bundle.name}@{bundle.version}#{digest}"


def _label(bundle: Bundle) -> str:
    return f"{bundle.name} {bundle.version}"


def _may_hold_bundle(path: Path) -> bool:
    try:
        return (path / MANIFEST).is_file()
    except OSError:
        return True  # loading it will tell what is wrong, and the others are loaded all the same


def _signature(path: Path) -> Signature:
    try:
        files = [(file.name, file.stat()) for file in path.iterdir() if file.is_file()]
    except OSError:
        return ()  # changes under our feet: another look will follow
    return tuple(sorted((name, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns) for name, stat in files))
