"""A result that another thread brings: what `concurrent.futures.Future` does, for a fraction of its cost.

Every segment has two, its job's and its waiter's. The library's builds a condition variable for each, in case somebody
blocks on it; a server never does, so here the one who blocks brings his own event. How an event loop waits is left to
`dragoman.service.translation.arrival`: an engine knows of none.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError
from enum import Enum
from typing import Any, Generic, TypeVar

T = TypeVar("T")

log = logging.getLogger(__name__)


class _State(Enum):
    PENDING, CANCELLED, FAILED, KEPT = range(4)


class Promise(Generic[T]):
    """Kept, failed or cancelled once, from any thread; whoever is to be told is told on that thread."""

    __slots__ = ("__weakref__", "_callbacks", "_lock", "_outcome", "_state")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._state = _State.PENDING
        self._outcome: Any = None
        self._callbacks: list[Callable[[Promise[T]], object]] = []

    def done(self) -> bool:
        return self._state is not _State.PENDING

    def cancelled(self) -> bool:
        return self._state is _State.CANCELLED

    def cancel(self) -> bool:
        """Wait no longer; False when it was kept or failed before."""
        return self._settle(_State.CANCELLED, None) or self.cancelled()

    def set_result(self, result: T) -> bool:
        """False, and nothing happens, when it was settled before: its waiter may leave at any moment."""
        return self._settle(_State.KEPT, result)

    def set_exception(self, error: BaseException) -> bool:
        return self._settle(_State.FAILED, error)

    def add_done_callback(self, callback: Callable[[Promise[T]], object]) -> None:
        """Called at once when it is settled already; what it raises is told in the log, and nowhere else."""
        with self._lock:
            if self._state is _State.PENDING:
                self._callbacks.append(callback)
                return
        self._tell(callback)

    def result(self, timeout: float | None = None) -> T:
        """Blocks; raises TimeoutError, CancelledError, or what it failed with."""
        error = self.exception(timeout)
        if error is not None:
            try:
                raise error
            finally:
                del error, self  # the error's traceback holds this frame: no cycle is to keep it alive
        result: T = self._outcome
        return result

    def exception(self, timeout: float | None = None) -> BaseException | None:
        if self._state is _State.PENDING:
            settled = threading.Event()
            self.add_done_callback(lambda _: settled.set())
            if not settled.wait(timeout):
                raise TimeoutError
        if self._state is _State.CANCELLED:
            raise CancelledError
        error: BaseException | None = self._outcome if self._state is _State.FAILED else None
        return error

    def _settle(self, state: _State, outcome: object) -> bool:
        with self._lock:
            if self._state is not _State.PENDING:
                return False
            self._outcome, self._state = outcome, state
            callbacks, self._callbacks = self._callbacks, []  # which may lead back here: no cycle stays
        for callback in callbacks:
            self._tell(callback)
        return True

    def _tell(self, callback: Callable[[Promise[T]], object]) -> None:
        try:
            callback(self)
        except Exception:
            log.exception("Somebody who waited for a promise failed.")
