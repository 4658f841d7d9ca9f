"""Work that ends when its caller does."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.types import Receive

from service.errors import ClientLeft

T = TypeVar("T")


async def while_connected(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Await the work; cancel it, and wait until it let go of everything, as soon as the caller hangs up."""
    departure = _Departure()
    # Only the listening needs a task of its own: the work goes on in this one, which is told when to stop.
    leaving = asyncio.create_task(_disconnected(receive))
    leaving.add_done_callback(departure.note)
    try:
        return await work
    except asyncio.CancelledError:
        if departure.happened and departure.waiter.uncancel() == 0:
            raise ClientLeft from None
        raise
    finally:
        departure.matters = False
        leaving.cancel()


class _Departure:
    """The caller's, while someone works for it."""

    def __init__(self) -> None:
        waiter = asyncio.current_task()
        assert waiter is not None
        self.waiter, self.matters, self.happened = waiter, True, False

    def note(self, leaving: "asyncio.Task[None]") -> None:
        if leaving.cancelled():
            return
        leaving.exception()  # a connection that fails has left, too
        if self.matters:
            self.happened = True
            self.waiter.cancel()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
