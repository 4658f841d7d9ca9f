"""`dragoman translate`: standard input to standard output, with the same engine and the same text rules as the server.

Reads, writes, opens bundles and shows progress; lines are translated by `lines.py`.
"""

import asyncio
import contextlib
import os
import stat
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from dragoman.service.bundles.manifest import Bundle
    from dragoman.service.catalog.catalog import Catalog, Route, Served
    from dragoman.service.commands.lines import LineFormat, LineReport
    from dragoman.service.engine.explainer import Explainer
    from dragoman.service.engine.loop import Engine
    from dragoman.service.translation.contract import Translation, TranslationOptions
    from dragoman.service.translation.tokenizer import Tokenizer

EMBEDDED = Path(__file__).parents[1] / "embedded"
MAX_BEAM = 64
_WINDOW_LINES = 2048
_READ_BYTES = 1 << 16
_CACHE_BYTES = 64 * 1024 * 1024
_QUIET_SECONDS = 0.05  # a producer that pauses so long is waiting for its answer
_INTERRUPTED, _BROKEN_PIPE = 130, 141  # as the shell counts signals


class InputError(Exception):
    """The input cannot be read; one sentence that says where and what to do."""


class OutputError(Exception):
    """The output cannot be written; one sentence that says why and what to do."""


def translate(
    source: Annotated[str, typer.Option("--from", metavar="LANG", help="Language of the input, or `auto`.")],
    target: Annotated[str, typer.Option("--to", metavar="LANG", help="Language of the output.")],
    bundle: Annotated[Path | None, typer.Option(metavar="DIR", help="A bundle, instead of the embedded ones.")] = None,
    beam: Annotated[
        int | None, typer.Option(metavar="N", min=1, max=MAX_BEAM, help="1 is greedy; by default the bundle's.")
    ] = None,
    n_best: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=1,
            help="Write exactly N lines for every line, best first (empty where there are fewer); at most --beam.",
        ),
    ] = 1,
    scores: Annotated[
        bool, typer.Option("--scores", help="Write a tab and the score (log-probability, normalized) after each line.")
    ] = False,
    max_new_tokens: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Stop a sentence after N tokens; by default 3 x source + 10.")
    ] = None,
    no_repetition_guard: Annotated[
        bool, typer.Option("--no-repetition-guard", help="Let a sentence that repeats itself run to its limit.")
    ] = False,
    threads: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Decode threads; by default the CPUs we may use.")
    ] = None,
) -> None:
    """Translate standard input to standard output: a line in, a line out, in order. Empty lines pass through."""
    _check_n_best(n_best, beam)
    _take_memory_as_needed()
    from dragoman.service.bundles.manifest import BundleError
    from dragoman.service.commands.lines import LineFormat
    from dragoman.service.errors import DragomanError
    from dragoman.service.translation.contract import TranslationOptions

    options = TranslationOptions(
        beam_size=beam,
        n_best=n_best,
        max_new_tokens=max_new_tokens,
        repetition_guard=not no_repetition_guard,
        split_sentences=n_best == 1,  # the nth best of a line is one of the line's, where the line fits the model
    )
    try:
        with open_catalog(bundle, source, target, threads, beam) as catalog, Terminal() as terminal:
            work = translate_descriptor(
                *(catalog, source, target, options, LineFormat(n_best, scores)),
                *(sys.stdin.fileno(), _write, terminal.advance),
            )
            report = asyncio.run(work)
    except KeyboardInterrupt:
        raise typer.Exit(_INTERRUPTED) from None
    except BrokenPipeError:
        _close_stdout()
        raise typer.Exit(_BROKEN_PIPE) from None
    except (BundleError, DragomanError, InputError, OutputError) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None
    if report.troubles:
        typer.echo(_complaint(report), err=True)


def _take_memory_as_needed() -> None:
    """Before NumPy is loaded: a large batch is mostly empty, but huge pages would make all of it resident."""
    os.environ.setdefault("NUMPY_MADVISE_HUGEPAGE", "0")


def _check_n_best(n_best: int, beam: int | None) -> None:
    if n_best > (beam or 1):
        told = "given without a --beam" if beam is None else f"more than --beam {beam}"
        raise typer.BadParameter(f"{n_best} is {told}; ask for a wider beam.", param_hint="--n-best")


async def translate_descriptor(
    catalog: "Catalog[Tokenizer]",
    source: str,
    target: str,
    options: "TranslationOptions",
    shape: "LineFormat",
    descriptor: int,
    write: Callable[[Sequence[str]], None],
    advance: Callable[[Sequence[str]], None] = lambda lines: None,
) -> "LineReport":
    """Translate the lines of a file descriptor; `advance` is told the lines of each chunk that is done."""
    from dragoman.service.commands.lines import translate_lines
    from dragoman.service.translation.cache import SegmentCache
    from dragoman.service.translation.contract import TranslationLimits
    from dragoman.service.translation.explainers import Explainers
    from dragoman.service.translation.language import Detector
    from dragoman.service.translation.translator import Translator

    # Lines that are equal are decoded once, as on the server.
    cache = SegmentCache(_CACHE_BYTES, time.monotonic)
    limits = TranslationLimits(max_texts=sys.maxsize, max_characters=sys.maxsize, max_beam_size=MAX_BEAM)
    explainers = Explainers(_open_explainer)
    translator = Translator(catalog, Detector(), cache, limits, ask_attention=explainers.attention)

    async def translate_some(lines: Sequence[str]) -> "Sequence[Translation]":
        result = await translator.translate(lines, source, target, options)
        advance(lines)
        return result.translations

    reader = LineReader(descriptor, asyncio.get_running_loop())
    return await translate_lines(reader.windows(), translate_some, write, shape)


@contextlib.contextmanager
def open_catalog(
    bundle: Path | None, source: str, target: str, threads: int | None, beam_size: int | None = None
) -> "Iterator[Catalog[Tokenizer]]":
    """The bundles that this pair needs, loaded and proved; raises BundleError."""
    from dragoman.service.bundles.manifest import BundleError
    from dragoman.service.catalog.catalog import Catalog
    from dragoman.service.process.cgroup import available_cpus
    from dragoman.service.translation.tokenizer import load_tokenizer

    num_threads = threads or available_cpus()
    catalog = Catalog(
        [bundle] if bundle else _embedded(source, target),
        open_engine=lambda bundle: _open_engine(bundle, num_threads, beam_size),
        open_tokenizer=load_tokenizer,
        observer=_Nobody(),
    )
    try:
        report = catalog.reload()
        if report.failed:
            raise BundleError(report.failed[0])
        if not catalog.bundles():
            raise BundleError(f"There is no bundle in {bundle or EMBEDDED}; --bundle takes what dragoman-export wrote.")
        _check_pair(catalog.code(source), catalog.code(target), catalog.routes())
        yield catalog
    finally:
        catalog.close(drain=False)


def _check_pair(source: str, target: str, routes: "Sequence[Route]") -> None:
    from dragoman.service.bundles.manifest import BundleError
    from dragoman.service.translation.contract import AUTO

    if not any(source in (AUTO, route[0]) and target == route[1] for route in routes):
        known = ", ".join(f"--from {route[0]} --to {route[1]}" for route in routes)
        raise BundleError(f"No bundle translates {source} to {target}; there is {known}.")


def _embedded(source: str, target: str) -> list[Path]:
    """The embedded bundles that serve the pair by themselves, or else all: there may be a way through two of them."""
    from dragoman.service.bundles.manifest import MANIFEST, read_bundle

    paths = sorted(path.parent for path in EMBEDDED.glob(f"*/{MANIFEST}"))
    pairs = {
        path: [(pair.source, pair.target) for pair in read_bundle(path, check_hashes=False).pairs] for path in paths
    }
    wanted = tuple(code.lower().partition("-")[0] for code in (source, target))  # as the catalog will read them
    return [path for path in paths if wanted in pairs[path]] or paths


def _open_engine(bundle: "Bundle", num_threads: int, beam_size: int | None) -> "Engine":
    from dragoman.service.commands.file_batch import batch_for
    from dragoman.service.engine.job import DecodingRules
    from dragoman.service.engine.loop import Engine
    from dragoman.service.engine.runner import OrtRunner
    from dragoman.service.engine.scheduler import EngineSettings
    from dragoman.service.engine.sessions import OrtSessions

    sessions = OrtSessions(bundle, threads=1)
    batch = batch_for(bundle, beam_size or bundle.rules.default_beam_size)
    runners = [OrtRunner(sessions, batch.rows, reserve=False) for _ in range(num_threads)]
    # Nobody else is here: no rows are kept free, and what is read is bounded by the windows.
    settings = EngineSettings(max_queued_tokens=sys.maxsize, interactive_share=0.0, max_batch_tokens=batch.tokens)
    return Engine(runners, DecodingRules.of(bundle), settings)


def _open_explainer(served: "Served[Tokenizer]") -> "Explainer":
    """For lines with tags, of which most files have none: graphs of its own, opened when one comes."""
    from dragoman.service.engine.explainer import explainer_of
    from dragoman.service.engine.sessions import OrtSessions

    return explainer_of(OrtSessions(served.bundle, threads=1))


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


class Terminal:
    """A progress bar on standard error, where that is a terminal and standard output is not."""

    def __init__(self) -> None:
        self._advance: Callable[[int, int], None] = lambda lines, size: None
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> "Terminal":
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


class _Nobody:
    """An observer of the catalog; what goes wrong is raised."""

    def loaded(self, bundle: "Bundle") -> None: ...
    def failed(self, path: Path, problem: str) -> None: ...
    def unloaded(self, bundle: "Bundle") -> None: ...


def _input_bytes() -> int | None:
    """The size of the input, where it is a file."""
    status = os.fstat(sys.stdin.fileno())
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def _write(lines: Sequence[str]) -> None:
    try:
        sys.stdout.buffer.write("".join(line + "\n" for line in lines).encode())
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise  # who reads has seen enough: no fault
    except OSError as error:
        _close_stdout()
        raise OutputError(f"The output cannot be written ({error.strerror}); make room, or write elsewhere.") from None


def _close_stdout() -> None:
    """It takes no more; the interpreter would complain when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _complaint(report: "LineReport") -> str:
    kinds = ", ".join(f"{reason}: {count}" for reason, count in sorted(report.troubles.items()))
    return (
        f"Of {report.num_lines:,} lines some are not whole ({kinds}); the first is line {report.first_troubled_line:,}."
    )
