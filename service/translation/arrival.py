"""Wait on an event loop for a promise that an engine's thread settles."""

import asyncio
from functools import partial
from typing import Any, TypeVar

from dragoman.service.engine.promise import Promise

T = TypeVar("T")


async def arrival(promise: Promise[T]) -> T:
    """The result of the promise. Cancelling the waiting task cancels the promise."""
    if promise.done():
        await asyncio.sleep(0)  # a request that is answered from the cache alone must still let others run
    else:
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()
        promise.add_done_callback(partial(_wake_soon, loop, waiter))
        try:
            await waiter
        except asyncio.CancelledError:
            promise.cancel()
            raise
    if promise.cancelled():
        raise asyncio.CancelledError
    try:
        return promise.result()
    finally:
        del promise  # the promise holds its error, and the error's traceback holds this frame: no cycle


def _wake_soon(loop: asyncio.AbstractEventLoop, waiter: "asyncio.Future[None]", promise: Promise[Any]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(_wake, waiter)


def _wake(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)
