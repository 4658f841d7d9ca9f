"""Loads bundles and lets them go, as `residence.py` decides: on threads of its own, once for all who wait.

Whoever changes something makes the next turn; nothing slow runs under the lock. A load that fails is told to all who
waited for it, and the next request tries again.
"""

import ctypes
import gc
import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from dragoman.service.bundles.manifest import BundleError
from dragoman.service.catalog.residence import Residence, Turn, Wish
from dragoman.service.catalog.served import Offer, Served

MAX_LOADS = 2  # at one time: a pair through a third language needs two, and more would only slow each other down

log = logging.getLogger("dragoman.bundles")


class LoadFailedError(Exception):
    """A bundle could not be loaded now; asking again tries again."""


class OfferGoneError(Exception):
    """The bundle was replaced or taken away while somebody waited for it: look again for one."""


class ClosedError(Exception):
    """The catalog was closed while somebody waited."""


class LoadObserver(Protocol):
    """Is told what comes and goes, on the threads where it happens."""

    def bundle_loaded(self, seconds: float) -> None: ...
    def bundle_failed(self) -> None: ...
    def bundle_evicted(self) -> None: ...


class SilentLoadObserver:
    def bundle_loaded(self, seconds: float) -> None: ...
    def bundle_failed(self) -> None: ...
    def bundle_evicted(self) -> None: ...


@dataclass(eq=False)
class _Order(Wish[Offer]):
    """A wish with the promise that was made for it."""

    promise: "Future[tuple[Served, ...]]"
    ready: tuple[Served, ...] = ()  # when it is granted


class Loader:
    def __init__(
        self,
        open_offer: Callable[[Offer], Served],
        max_bytes: int | None = None,
        observer: LoadObserver | None = None,
        changed: Callable[[Offer], None] = lambda offer: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`open_offer` gives a bundle that passed its checks, or raises. `changed` is told when it failed, or came
        back after it had failed."""
        self._open, self._changed, self._clock = open_offer, changed, clock
        self._told: LoadObserver = observer or SilentLoadObserver()
        self._plan: Residence[Offer] = Residence(max_bytes, MAX_LOADS)
        self._lock = threading.Lock()
        self._closed = False
        self._loads = ThreadPoolExecutor(MAX_LOADS, "load-bundle")
        self._leaves = ThreadPoolExecutor(1, "retire-engine")
        self._alarm: threading.Timer | None = None

    # What is offered

    def offer(self, offer: Offer) -> None:
        """It is loaded at its first use."""
        with self._lock:
            self._plan.add(offer, offer.num_bytes)

    def adopt(self, offer: Offer) -> None:
        """A bundle that the caller has loaded."""
        with self._lock:
            self._plan.adopt(offer, offer.num_bytes, self._clock())
            turn = self._turn()
        self._carry_out(turn)

    def withdraw(self, offer: Offer) -> None:
        """It is offered no longer, and leaves when its users have."""
        with self._lock:
            orders = self._plan.remove(offer)
            turn = self._turn()
        _fail(orders, lambda: OfferGoneError("the bundle was replaced"))
        self._carry_out(turn)

    # Using

    def take(self, offers: Sequence[Offer]) -> tuple[Served, ...] | None:
        """Use them at once; None if one of them must be loaded first."""
        with self._lock:
            return self._served(offers) if self._plan.take(offers) else None

    def pin(self, offer: Offer) -> bool:
        """Keep a loaded bundle, whatever happens to its files; False if it is not loaded."""
        with self._lock:
            return self._plan.pin(offer)

    def wait(self, offers: Sequence[Offer]) -> "Future[tuple[Served, ...]]":
        """Use them when they are loaded; cancel the promise to give up. Its result must be released."""
        order = _Order(tuple(offers), Future())
        with self._lock:
            closed = self._closed
            known = not closed and self._plan.ask(order)
            turn = self._turn() if known else Turn()
        if closed:
            _fail([order], lambda: ClosedError("the catalog is closed"))
        elif not known:
            _fail([order], lambda: OfferGoneError("the bundle was replaced"))
        else:
            order.promise.add_done_callback(lambda promise: self._given_up(order) if promise.cancelled() else None)
            self._carry_out(turn)
        return order.promise

    def release(self, offers: Sequence[Offer]) -> None:
        with self._lock:
            for offer in offers:
                offer.used_at = self._clock()
            self._plan.release(offers)
            turn = Turn() if self._plan.calm else self._turn()
        self._carry_out(turn)

    # Looking

    def loaded(self) -> list[Offer]:
        with self._lock:
            return self._plan.resident()

    def held_bytes(self) -> int:
        with self._lock:
            return self._plan.held_bytes()

    def close(self, drain: bool) -> None:
        """Stop every engine; with `drain`, after it has finished its jobs."""
        with self._lock:
            self._closed = True
            offers, alarm = self._plan.resident(), self._alarm
            orders = [order for offer in self._plan.known() for order in self._plan.remove(offer)]
        _fail(orders, lambda: ClosedError("the catalog was closed"))
        if alarm is not None:
            alarm.cancel()
        self._loads.shutdown(wait=True)
        for offer in {*offers, *self.loaded()}:
            served = offer.served  # one that leaves right now is stopped by its own thread
            if served is not None:
                served.engine.stop(drain=drain)
        self._leaves.shutdown(wait=True)

    # Turns

    def _turn(self) -> Turn[Offer]:
        """Under the lock: decide, and give the granted orders their bundles."""
        turn = Turn() if self._closed else self._plan.turn(self._clock())
        for order in turn.granted:
            assert isinstance(order, _Order)
            order.ready = self._served(order.keys)
        return turn

    def _carry_out(self, turn: Turn[Offer]) -> None:
        for offer in turn.evict:
            self._leaves.submit(self._let_go, offer)
        for offer in turn.load:
            self._loads.submit(self._load, offer)
        for order in turn.granted:
            assert isinstance(order, _Order)
            if order.promise.set_running_or_notify_cancel():
                order.promise.set_result(order.ready)
            else:
                self.release(order.keys)
        if turn.again_at is not None:
            self._set_alarm(turn.again_at)

    def _set_alarm(self, at: float) -> None:
        with self._lock:
            if self._closed or (self._alarm is not None and self._alarm.is_alive()):
                return
            self._alarm = threading.Timer(max(0.0, at - self._clock()), self._next_turn)
            self._alarm.daemon = True
            self._alarm.start()

    def _next_turn(self) -> None:
        with self._lock:
            self._alarm = None
            turn = self._turn()
        self._carry_out(turn)

    def _given_up(self, order: _Order) -> None:
        with self._lock:
            self._plan.withdraw(order)
            turn = self._turn()
        self._carry_out(turn)

    # On threads

    def _load(self, offer: Offer) -> None:
        began, again = self._clock(), offer.problem is not None
        try:
            served = self._open(offer)
        except Exception as error:  # a foreign file can fail in any way; the other bundles must go on serving
            self._load_failed(offer, error)
            return
        self._told.bundle_loaded(self._clock() - began)
        with self._lock:
            offer.served, offer.problem = served, None
            self._plan.loaded(offer, self._clock())
            closed, turn = self._closed, self._turn()
        if closed:
            served.engine.stop(drain=False)
        log.info("bundle loaded", extra={"bundle": offer.label})
        if again:
            self._changed(offer)
        self._carry_out(turn)

    def _load_failed(self, offer: Offer, error: Exception) -> None:
        told = str(error) if isinstance(error, BundleError) else f"{offer.bundle.path} could not be loaded: {error}"
        offer.problem = " ".join(told.split())
        log.error("bundle refused: %s", offer.problem)
        self._told.bundle_failed()
        with self._lock:
            orders = self._plan.failed(offer)
            turn = self._turn()
        self._changed(offer)
        _fail(orders, lambda: LoadFailedError(offer.problem or ""))
        self._carry_out(turn)

    def _let_go(self, offer: Offer) -> None:
        served, offer.served = offer.served, None
        try:
            if served is not None:
                served.engine.stop(drain=True)
                del served
                _return_memory()
                self._told.bundle_evicted()
                log.info("bundle let go", extra={"bundle": offer.label})
        finally:
            with self._lock:
                self._plan.gone(offer)
                turn = self._turn()
            self._carry_out(turn)

    def _served(self, offers: Sequence[Offer]) -> tuple[Served, ...]:
        served = tuple(offer.served for offer in offers if offer.served is not None)
        assert len(served) == len(offers), "a bundle is in memory while it is resident"
        return served


def _fail(orders: Sequence[Wish[Offer]], error: Callable[[], Exception]) -> None:
    """Each with an exception of its own: they travel through tasks that add to them."""
    for order in orders:
        assert isinstance(order, _Order)
        if order.promise.set_running_or_notify_cancel():
            order.promise.set_exception(error())


def _return_memory() -> None:
    """What an engine had is freed when nothing refers to it, also in a circle; glibc would keep some for itself."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
