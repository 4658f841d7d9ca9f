"""Work that ends when its caller does."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.types import Receive

from service.errors import ClientLeft

T = TypeVar("T")


async def while_connected(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Await the work; cancel it, and wait until it let go of everything, as soon as the caller hangs up."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientLeft
        return working.result()
    finally:
        for task in (working, leaving):
            task.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
