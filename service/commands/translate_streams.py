"""Standard input and output of `dragoman translate`: lines from a descriptor, lines to standard output, progress."""

import asyncio
import contextlib
import os
import stat
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence

_WINDOW_LINES = 2048
_READ_BYTES = 1 << 16
_QUIET_SECONDS = 0.05  # a producer that pauses so long is waiting for its answer


class InputError(Exception):
    """The input cannot be read; the message is one sentence that says where and what to do."""


class OutputError(Exception):
    """The output cannot be written; the message is one sentence that says why and what to do."""


class LineReader:
    """Lines of a file descriptor, in windows: as many as come without a pause.

    A thread reads, because no event loop can wait for a file. It uses the descriptor itself: the lock of a buffered
    reader, held by a thread that waits for input, would make the interpreter's exit fail.
    """

    def __init__(self, descriptor: int, loop: asyncio.AbstractEventLoop) -> None:
        self._descriptor, self._loop = descriptor, loop
        self._inbox: asyncio.Queue[list[str] | InputError | None] = asyncio.Queue()
        self._room = threading.Semaphore(4)
        self._num_lines = 0
        threading.Thread(target=self._read, name="read-lines", daemon=True).start()

    async def windows(self) -> AsyncIterator[list[str]]:
        """Raises InputError, after the lines before it."""
        end: InputError | None = None
        more = True
        while more:
            window: list[str] = []
            while more and len(window) < _WINDOW_LINES:
                try:
                    async with asyncio.timeout(_QUIET_SECONDS if window else None):
                        item = await self._inbox.get()
                except TimeoutError:
                    break
                self._room.release()
                if isinstance(item, list):
                    window += item
                else:
                    more, end = False, item
            if window:
                yield window
        if end is not None:
            raise end

    def _read(self) -> None:
        try:
            for lines in self._chunks():
                self._put(lines)
            self._put(None)
        except InputError as error:
            self._put(error)
        except OSError as error:
            self._put(InputError(f"The input cannot be read: {error}."))

    def _chunks(self) -> Iterator[list[str]]:
        pending: list[bytes] = []  # the beginning of a line
        while data := os.read(self._descriptor, _READ_BYTES):
            pending.append(data)
            if b"\n" in data:
                *lines, rest = b"".join(pending).split(b"\n")
                pending = [rest]
                yield from self._decoded(lines)
        if last := b"".join(pending):
            yield from self._decoded([last])

    def _decoded(self, lines: Sequence[bytes]) -> Iterator[list[str]]:
        decoded: list[str] = []
        for line in lines:
            self._num_lines += 1
            try:
                decoded.append(line.decode())
            except UnicodeDecodeError:
                yield decoded
                raise InputError(
                    f"Line {self._num_lines} of the input is not UTF-8; convert it first, for example with iconv."
                ) from None
        yield decoded

    def _put(self, item: list[str] | InputError | None) -> None:
        self._room.acquire()
        with contextlib.suppress(RuntimeError):  # the loop has closed: nobody wants it any more
            self._loop.call_soon_threadsafe(self._inbox.put_nowait, item)


class ProgressBar:
    """On standard error, if that is a terminal and standard output is not."""

    def __init__(self) -> None:
        self._advance: Callable[[int, int], None] = lambda lines, size: None
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> "ProgressBar":
        if sys.stderr.isatty() and not sys.stdout.isatty():
            self._show()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def advance(self, lines: Sequence[str]) -> None:
        self._advance(len(lines), sum(len(line.encode()) + 1 for line in lines))

    def _show(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        columns = (
            BarColumn(),
            TextColumn("{task.fields[lines]:,} lines, {task.fields[rate]:,.0f} a second"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        progress = self._stack.enter_context(Progress(*columns, console=Console(stderr=True), transient=True))
        task = progress.add_task("", total=_input_bytes(), lines=0, rate=0.0)
        began, done = time.monotonic(), 0

        def advance(lines: int, size: int) -> None:
            nonlocal done
            done += lines
            rate = done / max(1e-9, time.monotonic() - began)
            progress.update(task, advance=size, lines=done, rate=rate)

        self._advance = advance


def _input_bytes() -> int | None:
    """The size of the input, where it is a file."""
    status = os.fstat(sys.stdin.fileno())
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def write_lines(lines: Sequence[str]) -> None:
    try:
        sys.stdout.buffer.write("".join(line + "\n" for line in lines).encode())
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise  # the reader has seen enough, as `head` has: not an error
    except OSError as error:
        close_stdout()
        raise OutputError(f"The output cannot be written ({error.strerror}); make room, or write elsewhere.") from None


def close_stdout() -> None:
    """Nothing more can be written; the interpreter would complain when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
