"""Work lives as long as its caller: no longer when it hangs up, and undisturbed when it does not."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from starlette.types import Message

from dragoman.service.api.connection import while_connected
from dragoman.service.errors import ClientLeft

LEFT: Message = {"type": "http.disconnect"}
MORE: Message = {"type": "http.request", "body": b"", "more_body": False}


class Caller:
    """Says one thing after another, whenever told to."""

    def __init__(self, *at_once: Message) -> None:
        self._messages: asyncio.Queue[Message] = asyncio.Queue()
        for message in at_once:
            self._messages.put_nowait(message)
        self.say = self._messages.put_nowait
        self.receive: Callable[[], Awaitable[Message]] = self._messages.get


class Work:
    def __init__(self) -> None:
        self.may_end, self.begun, self.let_go = asyncio.Event(), asyncio.Event(), False

    async def run_for(self, caller: Caller) -> str:
        with while_connected(caller.receive):
            return await self.run()

    async def run(self) -> str:
        self.begun.set()
        try:
            await self.may_end.wait()
            return "done"
        finally:
            await asyncio.sleep(0)  # letting go may take a moment
            self.let_go = True


async def test_a_caller_that_stays_gets_its_answer() -> None:
    caller, work = Caller(MORE), Work()
    task = asyncio.create_task(work.run_for(caller))
    await work.begun.wait()
    work.may_end.set()
    assert await task == "done"


async def test_a_caller_that_hangs_up_ends_the_work_and_waits_for_its_end() -> None:
    """Whatever comes before: more of a body is no goodbye."""
    caller, work = Caller(), Work()
    task = asyncio.create_task(work.run_for(caller))
    await work.begun.wait()
    caller.say(MORE)
    await asyncio.sleep(0)
    caller.say(LEFT)
    with pytest.raises(ClientLeft):
        await task
    assert work.let_go
    assert task.cancelling() == 0


async def test_work_for_a_caller_that_has_left_does_not_begin() -> None:
    async def receive() -> Message:
        return LEFT

    caller, work = Caller(), Work()
    caller.receive = receive
    with pytest.raises(ClientLeft):
        await work.run_for(caller)
    assert not work.begun.is_set()
    await asyncio.sleep(0)  # and nothing is cancelled afterwards


async def test_a_connection_that_fails_has_left() -> None:
    failing = asyncio.Event()

    async def receive() -> Message:
        await failing.wait()
        raise ConnectionResetError

    caller, work = Caller(), Work()
    caller.receive = receive
    task = asyncio.create_task(work.run_for(caller))
    await work.begun.wait()
    failing.set()
    with pytest.raises(ClientLeft):
        await task
    assert work.let_go


async def test_who_cancels_from_outside_is_not_taken_for_the_caller() -> None:
    """A server that shuts down cancels too, and must see that it did."""
    caller, work = Caller(), Work()
    task = asyncio.create_task(work.run_for(caller))
    await work.begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert work.let_go


async def test_a_goodbye_after_the_answer_disturbs_nobody() -> None:
    """The same task goes on to send what it has."""
    caller, work = Caller(), Work()

    async def request() -> str:
        said = await work.run_for(caller)
        caller.say(LEFT)
        for _ in range(3):
            await asyncio.sleep(0)
        return said

    work.may_end.set()
    assert await asyncio.create_task(request()) == "done"
