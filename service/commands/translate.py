"""`dragoman translate`: standard input to standard output, with the same engine and the same text rules as the server.

This file has the options and the messages; `translate_streams.py` reads and writes, `translate_lines.py` keeps the
order of the lines.
"""

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from dragoman.service.assembly import Parts
    from dragoman.service.catalog.routes import Route
    from dragoman.service.commands.translate_lines import LineFormat, LineReport
    from dragoman.service.translation.contract import Translation, TranslationOptions
    from dragoman.service.translation.translator import Translator

MAX_BEAM = 64
_INTERRUPTED, _BROKEN_PIPE = 130, 141  # as the shell counts signals


def translate(
    source: Annotated[str, typer.Option("--from", metavar="LANG", help="Language of the input, or `auto`.")],
    target: Annotated[str, typer.Option("--to", metavar="LANG", help="Language of the output.")],
    bundle: Annotated[Path | None, typer.Option(metavar="DIR", help="A bundle, instead of the embedded ones.")] = None,
    beam: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, max=MAX_BEAM, help="Beam size; 1 is greedy, the default is the bundle's."),
    ] = None,
    n_best: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=1,
            help="Write exactly N lines for every line, best first (empty if there are fewer); at most --beam.",
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
        int | None,
        typer.Option(metavar="N", min=1, help="Decode threads; by default all CPUs that this process may use."),
    ] = None,
) -> None:
    """Translate standard input to standard output: a line in, a line out, in order. Empty lines pass through."""
    _check_n_best(n_best, beam)
    _take_memory_as_needed()
    from dragoman.service.commands.translate_lines import LineFormat
    from dragoman.service.translation.contract import TranslationOptions

    options = TranslationOptions(
        beam_size=beam,
        n_best=n_best,
        max_new_tokens=max_new_tokens,
        repetition_guard=not no_repetition_guard,
        split_sentences=n_best == 1,  # alternatives are of the whole line, if it fits the model
    )
    report = _translate_stdin(bundle, source, target, threads, options, LineFormat(n_best, scores))
    if report.troubles:
        typer.echo(_complaint(report), err=True)


def _translate_stdin(
    bundle: Path | None,
    source: str,
    target: str,
    threads: int | None,
    options: "TranslationOptions",
    shape: "LineFormat",
) -> "LineReport":
    """To standard output; whatever goes wrong ends the command with one sentence."""
    from dragoman.service.bundles.manifest import BundleError
    from dragoman.service.commands.translate_streams import (
        InputError,
        OutputError,
        ProgressBar,
        close_stdout,
        write_lines,
    )
    from dragoman.service.errors import DragomanError

    try:
        with open_parts(bundle, source, target, threads, options.beam_size) as parts, ProgressBar() as progress:
            stdin = sys.stdin.fileno()
            return asyncio.run(
                translate_descriptor(
                    parts.translator, source, target, options, shape, stdin, write_lines, progress.advance
                )
            )
    except KeyboardInterrupt:
        raise typer.Exit(_INTERRUPTED) from None
    except BrokenPipeError:
        close_stdout()
        raise typer.Exit(_BROKEN_PIPE) from None
    except (BundleError, DragomanError, InputError, OutputError) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None


def _take_memory_as_needed() -> None:
    """Before NumPy is loaded: with huge pages all of a large batch would be resident, though most of it is empty."""
    os.environ.setdefault("NUMPY_MADVISE_HUGEPAGE", "0")


def _check_n_best(n_best: int, beam: int | None) -> None:
    if n_best > (beam or 1):
        raise typer.BadParameter(f"{n_best} translations need --beam {n_best} or more.", param_hint="--n-best")


async def translate_descriptor(
    translator: "Translator",
    source: str,
    target: str,
    options: "TranslationOptions",
    shape: "LineFormat",
    descriptor: int,
    write: Callable[[Sequence[str]], None],
    advance: Callable[[Sequence[str]], None] = lambda lines: None,
) -> "LineReport":
    """Translate the lines of a file descriptor; `advance` is called with the lines of each chunk that is done."""
    from dragoman.service.commands.translate_lines import translate_lines
    from dragoman.service.commands.translate_streams import LineReader

    async def translate_some(lines: Sequence[str]) -> "Sequence[Translation]":
        result = await translator.translate(lines, source, target, options)
        advance(lines)
        return result.translations

    reader = LineReader(descriptor, asyncio.get_running_loop())
    return await translate_lines(reader.windows(), translate_some, write, shape)


@contextlib.contextmanager
def open_parts(
    bundle: Path | None, source: str, target: str, threads: int | None, beam_size: int | None = None
) -> "Iterator[Parts]":
    """A translator with the bundles that this pair needs, loaded and checked; raises BundleError."""
    from dragoman.service.assembly import EMBEDDED, build_file_parts
    from dragoman.service.bundles.manifest import BundleError

    roots = [bundle] if bundle else _serving(EMBEDDED, source, target)
    parts = build_file_parts(roots, threads, beam_size, MAX_BEAM)
    catalog = parts.catalog
    try:
        report = catalog.reload()
        for problem in (*report.failed, *report.unlisted):
            raise BundleError(problem)
        if not catalog.bundles():
            raise BundleError(
                f"There is no bundle in {bundle or EMBEDDED}; --bundle takes a folder that dragoman-export wrote."
            )
        _check_pair(catalog.code(source), catalog.code(target), catalog.routes())
        yield parts
    finally:
        catalog.close(drain=False)


def _check_pair(source: str, target: str, routes: "Sequence[Route]") -> None:
    from dragoman.service.bundles.manifest import BundleError
    from dragoman.service.translation.contract import AUTO

    if not any(source in (AUTO, route[0]) and target == route[1] for route in routes):
        known = ", ".join(f"--from {route[0]} --to {route[1]}" for route in routes)
        raise BundleError(f"No bundle translates {source} to {target}; choose from: {known}.")


def _serving(root: Path, source: str, target: str) -> list[Path]:
    """The bundles in `root` that serve the pair by themselves, or else all: the way may lead through two of them."""
    from dragoman.service.bundles.manifest import MANIFEST, read_bundle
    from dragoman.service.language_codes import base_language

    paths = sorted(path.parent for path in root.glob(f"*/{MANIFEST}"))
    pairs = {
        path: [(pair.source, pair.target) for pair in read_bundle(path, check_hashes=False).pairs] for path in paths
    }
    wanted = base_language(source), base_language(target)
    return [path for path in paths if wanted in pairs[path]] or paths


def _complaint(report: "LineReport") -> str:
    kinds = ", ".join(f"{reason}: {count}" for reason, count in sorted(report.troubles.items()))
    return (
        f"{report.num_troubled:,} of {report.num_lines:,} lines may be wrong or incomplete ({kinds}); the first one "
        f"is line {report.first_troubled_line:,}."
    )
