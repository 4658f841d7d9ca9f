"""Work that ends when its caller does."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from starlette.types import Receive

from dragoman.service.errors import ClientLeft

T = TypeVar("T")


async def while_connected(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Await the work; cancel it, and wait until it let go of everything, as soon as the caller hangs up."""
    departure = _Departure()
    listener = _Listener(_disconnected(receive), departure.note)
    if departure.happened:
        work.close()
        raise ClientLeft
    try:
        return await work
    except asyncio.CancelledError:
        if departure.happened and departure.waiter.uncancel() == 0:
            raise ClientLeft from None
        raise
    finally:
        listener.close()


class _Departure:
    """The caller's, while someone works for it."""

    def __init__(self) -> None:
        waiter = asyncio.current_task()
        assert waiter is not None
        self.waiter, self.happened = waiter, False

    def note(self, at_once: bool) -> None:
        self.happened = True
        if not at_once:  # else the work has not begun
            self.waiter.cancel()


class _Listener:
    """Steps a coroutine whenever what it waits for is there, as a task would, and tells when it has ended.

    A task would be made, registered, cancelled, woken and buried for every request, most of which hear nothing: that
    took longer than reading and checking the body. This one is only forgotten.
    """

    def __init__(self, hearing: Coroutine[Any, Any, None], ended: Callable[[bool], None]) -> None:
        self._hearing, self._ended, self._listens = hearing, ended, True
        self._step(at_once=True)

    def close(self) -> None:
        self._listens = False
        self._hearing.close()

    def _step(self, at_once: bool = False) -> None:
        if not self._listens:
            return
        try:
            waits_for = self._hearing.send(None)
        except (StopIteration, Exception):  # a connection that fails has left, too
            self._listens = False
            self._ended(at_once)
            return
        if waits_for is None:  # only for the loop's next round
            asyncio.get_running_loop().call_soon(self._step)
            return
        waits_for._asyncio_future_blocking = False  # what a task says to a future that it has heard of
        waits_for.add_done_callback(self._go_on)

    def _go_on(self, done: "asyncio.Future[Any]") -> None:
        self._step()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
