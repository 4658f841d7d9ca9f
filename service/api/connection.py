"""Cancels work whose caller has hung up."""

import asyncio
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self

from starlette.types import Receive

from dragoman.service.errors import ClientLeft


class while_connected:  # noqa: N801 - it is read as a clause: `with while_connected(receive):`
    """Cancels what is awaited inside it as soon as the caller hangs up, waits until that has let go of everything, and
    raises ClientLeft. If the caller has left already, nothing inside it runs.

    It steps the coroutine that waits for the hang-up itself, whenever there is something to hear. A task would have to
    be made, registered, woken and cancelled for every request, though hardly any caller hangs up; that took longer than
    reading and checking the body.
    """

    def __init__(self, receive: Receive) -> None:
        self._hang_up: Coroutine[Any, Any, None] = _hang_up(receive)
        self._listens, self._left, self._inside = True, False, False

    def __enter__(self) -> Self:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._step()
        if self._left:
            raise ClientLeft
        self._inside = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listens = False
        self._hang_up.close()
        if self._left and isinstance(error, asyncio.CancelledError) and self._task.uncancel() == 0:
            raise ClientLeft from None

    def _step(self, heard: "asyncio.Future[Any] | None" = None) -> None:
        if not self._listens:
            return
        try:
            waits_for = self._hang_up.send(None)
        except (StopIteration, Exception):  # a connection that fails has left, too
            self._listens, self._left = False, True
            if self._inside:
                self._task.cancel()
            return
        if waits_for is None:  # only for the loop's next round
            asyncio.get_running_loop().call_soon(self._step)
            return
        waits_for._asyncio_future_blocking = False  # what a task says to a future that it has heard of
        waits_for.add_done_callback(self._step)


async def _hang_up(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
