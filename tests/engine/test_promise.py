"""A promise is settled once, and everybody who waits for it learns so: callbacks, threads, event loops."""

import asyncio
import gc
import threading
import weakref
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import suppress

import pytest

from dragoman.service.engine.promise import Promise
from dragoman.service.translation.arrival import arrival

PATIENCE = 30.0


def test_only_the_first_outcome_counts() -> None:
    """An engine may answer at the moment in which its caller leaves; neither is to fail for it."""
    promise: Promise[int] = Promise()
    assert promise.set_result(1)
    assert not promise.set_result(2)
    assert not promise.set_exception(ValueError())
    assert not promise.cancel()
    assert promise.result(0) == 1


def test_who_comes_late_is_told_at_once() -> None:
    """A decode may land before anybody asked to be told."""
    promise: Promise[int] = Promise()
    told: list[str] = []
    promise.add_done_callback(lambda _: told.append("before"))
    promise.set_exception(ValueError("no"))
    promise.add_done_callback(lambda _: told.append("after"))
    assert told == ["before", "after"]
    assert isinstance(promise.exception(0), ValueError)
    with pytest.raises(ValueError, match="no"):
        promise.result(0)


def test_a_listener_that_fails_keeps_nobody_from_being_told(caplog: pytest.LogCaptureFixture) -> None:
    """The decode thread calls listeners; it must survive them."""
    promise: Promise[int] = Promise()
    told: list[int] = []
    promise.add_done_callback(lambda _: 1 // 0)
    promise.add_done_callback(lambda settled: told.append(settled.result(0)))
    promise.set_result(7)
    assert told == [7]
    assert "promise" in caplog.text


def test_a_cancelled_promise_raises_and_cancels_again() -> None:
    promise: Promise[int] = Promise()
    assert promise.cancel()
    assert promise.cancel()
    assert promise.cancelled()
    with pytest.raises(CancelledError):
        promise.result(0)


def test_a_pending_promise_runs_out_of_patience() -> None:
    with pytest.raises(TimeoutError):
        Promise[int]().result(0)


def test_a_thread_waits_for_another() -> None:
    promise: Promise[int] = Promise()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(promise.result, PATIENCE)
        promise.set_result(3)
        assert waiting.result(PATIENCE) == 3


async def test_an_event_loop_is_woken_by_another_thread() -> None:
    promise: Promise[int] = Promise()
    threading.Timer(0, promise.set_result, [4]).start()
    assert await arrival(promise) == 4
    assert await arrival(promise) == 4  # and again, without waiting


async def test_a_promise_that_is_cancelled_cancels_who_awaits_it() -> None:
    promise: Promise[int] = Promise()
    task = asyncio.ensure_future(arrival(promise))
    await asyncio.sleep(0)
    promise.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_task_that_is_cancelled_cancels_its_promise() -> None:
    """Nothing goes on for a caller who left."""
    promise: Promise[int] = Promise()
    task = asyncio.ensure_future(arrival(promise))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert promise.cancelled()


def test_a_promise_kept_after_its_loop_closed_disturbs_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """A decode may outlive the event loop that asked for it."""
    promise: Promise[int] = Promise()
    loop = asyncio.new_event_loop()
    waiting = loop.create_task(arrival(promise))
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    promise.set_result(1)
    assert not caplog.text
    waiting.get_coro().close()
    waiting._log_destroy_pending = False  # type: ignore[attr-defined]  # left behind on purpose


def test_an_error_goes_when_nobody_holds_it() -> None:
    """It would else keep what it refused alive, until the collector comes, which a server makes wait."""

    class RefusalError(Exception): ...

    promise: Promise[int] = Promise()
    error = RefusalError()
    gone = weakref.ref(error)
    promise.set_exception(error)
    gc.disable()
    try:
        with suppress(RefusalError):
            promise.result()
        del error, promise
        assert gone() is None
    finally:
        gc.enable()
