"""Where an engine's thread and an event loop meet: a task waits for what a thread promised."""

import asyncio
from functools import partial
from typing import Any, TypeVar

from dragoman.service.engine.promise import Promise

T = TypeVar("T")


async def arrival(promise: Promise[T]) -> T:
    """The result, for a task of an event loop; whose cancellation cancels the promise."""
    if promise.done():
        await asyncio.sleep(0)  # who asks for nothing but what is known must not keep the loop from the others
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
        del promise  # which holds its error, whose traceback holds this frame


def _wake_soon(loop: asyncio.AbstractEventLoop, waiter: "asyncio.Future[None]", promise: Promise[Any]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(_wake, waiter)


def _wake(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)
