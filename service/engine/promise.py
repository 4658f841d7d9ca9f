"""A result that another thread will set: like `concurrent.futures.Future`, for a fraction of its cost.

Every segment has two, one for its job and one for its caller. The standard library's Future makes a condition variable
each time, in case a thread blocks on it. A server never blocks, so here only a caller that does block makes an event.
How an event loop waits is the business of `dragoman.service.translation.arrival`; the engine knows no event loop.
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
    """Kept, failed or cancelled once, from any thread; callbacks run on that thread."""

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
        """Nobody waits any longer; False when it was kept or failed before."""
        return self._settle(_State.CANCELLED, None) or self.cancelled()

    def set_result(self, result: T) -> bool:
        """False, and no effect, when it was settled before: the caller may cancel at any moment."""
        return self._settle(_State.KEPT, result)

    def set_exception(self, error: BaseException) -> bool:
        return self._settle(_State.FAILED, error)

    def add_done_callback(self, callback: Callable[[Promise[T]], object]) -> None:
        """Called at once when it is settled already; an exception of the callback is only logged."""
        with self._lock:
            if self._state is _State.PENDING:
                self._callbacks.append(callback)
                return
        self._tell(callback)

    def result(self, timeout: float | None = None) -> T:
        """Blocks; raises TimeoutError, CancelledError, or the exception that was set."""
        error = self.exception(timeout)
        if error is not None:
            try:
                raise error
            finally:
                del error, self  # the error's traceback holds this frame: avoid a cycle
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
            callbacks, self._callbacks = self._callbacks, []  # they may refer to this promise: avoid a cycle
        for callback in callbacks:
            self._tell(callback)
        return True

    def _tell(self, callback: Callable[[Promise[T]], object]) -> None:
        try:
            callback(self)
        except Exception:
            log.exception("A callback of a finished translation failed.")
