"""`dragoman translate` from file descriptor to lines, with bundles whose models need no network."""

from __future__ import annotations

import asyncio
import functools
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from subprocess import PIPE

import psutil
import pytest
from typer import Typer
from typer.testing import CliRunner

from dragoman.service.assembly import build_file_parts
from dragoman.service.bundles.manifest import WEIGHTS, Bundle
from dragoman.service.commands.translate import MAX_BEAM, _complaint, translate, translate_descriptor
from dragoman.service.commands.translate_lines import LineFormat, LineReport
from dragoman.service.commands.translate_streams import InputError, LineReader
from dragoman.service.translation.contract import TranslationOptions
from tests.bundles.fakes import fake_runner, sentences, write_bundle
from tests.engine.reverse_runner import FakeRunner

ROOT = Path(__file__).parents[2]
FULL = Path("/dev/full")  # takes nothing, as a full disk


@pytest.fixture
def pipe() -> tuple[int, Callable[[bytes], None]]:
    """A descriptor to read from, and what feeds it from another thread and closes it."""
    reading, writing = os.pipe()

    def feed(data: bytes) -> None:
        def work() -> None:
            with os.fdopen(writing, "wb") as file:
                file.write(data)

        threading.Thread(target=work, daemon=True).start()

    return reading, feed


def read_windows(descriptor: int) -> tuple[list[str], Exception | None]:
    lines: list[str] = []

    async def work() -> None:
        async for window in LineReader(descriptor, asyncio.get_running_loop()).windows():
            lines.extend(window)

    try:
        asyncio.run(work())
    except InputError as error:
        return lines, error
    return lines, None


def copying_runners(bundle: Bundle, max_rows: int) -> list[FakeRunner]:
    return [fake_runner(bundle.file(WEIGHTS).read_text(), 8, bundle.limits.max_source_tokens)]


def run(tmp_path: Path, pipe, text: str, kind: str = "copy", **options: object) -> tuple[list[str], LineReport]:
    write_bundle(tmp_path / "pt-en", kind)
    parts = build_file_parts([tmp_path], 1, options.get("beam_size"), MAX_BEAM, copying_runners)
    parts.catalog.reload()
    descriptor, feed = pipe
    feed(text.encode())
    output: list[str] = []
    shape = LineFormat(n_best=options.get("n_best", 1))
    try:
        work = translate_descriptor(
            parts.translator, "pt", "en", TranslationOptions(**options), shape, descriptor, output.extend
        )
        return output, asyncio.run(work)
    finally:
        parts.catalog.close(drain=False)


class TestReading:
    @pytest.mark.parametrize(
        ("data", "lines"),
        [
            (b"", []),
            (b"one\ntwo\n", ["one", "two"]),
            (b"one\n\ntwo", ["one", "", "two"]),
            (b"\n\n", ["", ""]),
            (b"dos\r\n", ["dos\r"]),
            ("não\u2028é\n".encode(), ["não\u2028é"]),
        ],
    )
    def test_lines_end_where_the_input_says_so(self, pipe, data: bytes, lines: list[str]) -> None:
        """Only a line feed ends a line; the last may lack it."""
        pipe[1](data)
        assert read_windows(pipe[0]) == (lines, None)

    def test_long_lines_and_large_inputs_come_whole(self, pipe) -> None:
        """Lines do not know how large a read is."""
        lines = ["x" * 200_000, *(f"é {number}" for number in range(20_000))]
        pipe[1]("\n".join(lines).encode())
        assert read_windows(pipe[0]) == (lines, None)

    def test_bytes_that_are_no_text_are_refused_by_line_number(self, pipe) -> None:
        """Guessing an encoding loses text silently; what came before is kept."""
        pipe[1](b"one\ntwo\n\xff\xfe\nfour\n")
        lines, error = read_windows(pipe[0])
        assert lines == ["one", "two"]
        assert "Line 3" in str(error)


class TestTranslating:
    def test_sentences_come_out_in_order(self, tmp_path: Path, pipe) -> None:
        """The copying model makes it plain: what goes in comes out."""
        lines = [source for source, _ in sentences()][:40]
        output, report = run(tmp_path, pipe, "\n".join(lines) + "\n\n  \nFim.\n")
        assert output == [*lines, "", "  ", "Fim."]
        assert (report.num_lines, dict(report.troubles)) == (43, {})

    def test_a_line_longer_than_the_model_takes_is_split_and_joined(self, tmp_path: Path, pipe) -> None:
        """Text that does not fit is split, never cut."""
        line = " ".join(source for source, _ in sentences()[:12])
        output, _ = run(tmp_path, pipe, line)
        assert output == [line]

    def test_lines_that_loop_are_counted(self, tmp_path: Path, pipe) -> None:
        """The user is told which lines are not whole."""
        _, report = run(tmp_path, pipe, "Fim\nA porta do jardim ficou aberta toda a noite.\n", kind="loop")
        assert dict(report.troubles) == {"repetition": 1}
        assert report.first_troubled_line == 2

    def test_n_best_lines_for_every_line(self, tmp_path: Path, pipe) -> None:
        """Beam and n-best reach the engine."""
        output, _ = run(tmp_path, pipe, "Fim.\n\nA porta.\n", beam_size=3, n_best=3, split_sentences=False)
        assert len(output) == 9
        assert (output[0], output[3:6], output[6]) == ("Fim.", ["", "", ""], "A porta.")
        assert output[2] not in ("", output[0])


class TestProcess:
    """The real command with a real, tiny, untrained bundle: what comes out is nonsense, but in order and whole."""

    @pytest.fixture
    def command(self, tiny_bundle: Bundle) -> list[str]:
        arguments = ["--from", "pt", "--to", "en", "--bundle", str(tiny_bundle.path), "--threads", "1"]
        return [
            sys.executable,
            "-m",
            "dragoman.service.commands.main",
            "translate",
            *arguments,
            "--max-new-tokens",
            "4",
        ]

    def test_lines_go_in_and_come_out(self, command: list[str]) -> None:
        """Alone or in a crowd, on one thread or two, greedy: the same bytes."""
        lines = [*(source for source, _ in sentences()[:30]), "", "Fim."]
        data = "\n".join(lines).encode()
        one = subprocess.run([*command, "--scores"], input=data, capture_output=True, check=True, cwd=ROOT)
        two = subprocess.run([*command, "--scores", "--threads", "2"], input=data, capture_output=True, cwd=ROOT)
        assert one.stdout == two.stdout
        output = one.stdout.decode().splitlines()
        assert len(output) == len(lines)
        assert output[30] == "\t0.000000"
        assert all(float(line.rsplit("\t", 1)[1]) <= 0 for line in output)
        alone = subprocess.run([*command, "--scores"], input=lines[7].encode(), capture_output=True, cwd=ROOT)
        assert alone.stdout.decode().splitlines() == output[7:8]

    def test_an_interruption_leaves_whole_lines(self, command: list[str]) -> None:
        """Ctrl-C after the first answer, while the next line is waited for."""
        # Who runs the tests in the background of a shell ignores interruptions, and would hand that on.
        heard = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
        process = subprocess.Popen(command, stdin=PIPE, stdout=PIPE, stderr=PIPE, cwd=ROOT, preexec_fn=heard)
        assert process.stdin is not None
        assert process.stdout is not None
        with process:
            process.stdin.write(b"A porta ficou aberta.\n")
            process.stdin.flush()
            assert process.stdout.readline().endswith(b"\n")
            process.send_signal(signal.SIGINT)
            process.wait(timeout=60)  # before the end of the input, which would be an end like any other
            rest, errors = process.communicate()
        assert (process.returncode, rest, errors.count(b"Traceback")) == (130, b"", 0)

    def test_a_reader_that_has_seen_enough_is_left_in_peace(self, command: list[str]) -> None:
        """`| head` is no error worth a word."""
        process = subprocess.Popen(command, stdin=PIPE, stdout=PIPE, stderr=PIPE, cwd=ROOT)
        assert process.stdout is not None
        with process:
            process.stdout.close()
            process.stdout = None
            _, errors = process.communicate(b"A porta.\n" * 20, timeout=60)
        assert (process.returncode, errors) == (141, b"")

    @pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full here")
    def test_a_disk_that_is_full_is_told_in_one_sentence(self, command: list[str]) -> None:
        """It happens to whoever translates large files; a page of our own code does not help them."""
        with FULL.open("wb") as full:
            wrong = subprocess.run(command, input=b"A porta.\n", stdout=full, stderr=PIPE, cwd=ROOT)
        told = "The output cannot be written (No space left on device); make room, or write elsewhere.\n"
        assert (wrong.returncode, wrong.stderr.decode()) == (1, told)

    def test_a_pair_that_is_not_there_is_refused_with_those_that_are(self, command: list[str]) -> None:
        """One sentence, no traceback."""
        wrong = subprocess.run([*command, "--to", "fi"], input=b"x", capture_output=True, cwd=ROOT)
        assert wrong.returncode == 1
        assert wrong.stderr.decode() == "No bundle translates pt to fi; choose from: --from pt --to en.\n"

    def test_a_large_batch_costs_no_memory_before_it_is_used(self) -> None:
        """Two threads with beams have room for half a gigabyte; one line must not fill it."""
        command = [sys.executable, "-m", "dragoman.service.commands.main", "translate", "--from", "pt", "--to", "en"]
        beams = ["--beam", "4", "--threads", "2"]
        with subprocess.Popen([*command, *beams], stdin=PIPE, stdout=PIPE, cwd=ROOT) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(b"Bom dia!\n")
            process.stdin.flush()
            assert process.stdout.readline() == b"Good morning!\n"
            assert psutil.Process(process.pid).memory_info().rss < 350e6  # all of it would be 670
            process.stdin.close()
        assert process.returncode == 0

    def test_a_directory_without_a_bundle_is_told_as_such(self, tmp_path: Path) -> None:
        """Whoever gave --bundle is not told to give --bundle."""
        command = [sys.executable, "-m", "dragoman.service.commands.main", "translate", "--from", "pt", "--to", "en"]
        wrong = subprocess.run([*command, "--bundle", str(tmp_path)], input=b"x", capture_output=True, cwd=ROOT)
        assert wrong.returncode == 1
        assert f"no bundle in {tmp_path}; --bundle takes a folder that dragoman-export wrote" in wrong.stderr.decode()


class TestCommand:
    def invoke(self, *arguments: str):
        app = Typer()
        app.command()(translate)
        return CliRunner().invoke(app, arguments)

    def test_help_says_what_is_written(self) -> None:
        """The format is part of the contract."""
        result = self.invoke("--help")
        assert result.exit_code == 0
        for word in ("--from", "--to", "--n-best", "--scores", "exactly N", "--no-repetition-guard", "--threads"):
            assert word in result.output.replace("\n", " ")

    def test_n_best_above_the_beam_is_refused(self) -> None:
        """Before anything is loaded."""
        result = self.invoke("--from", "pt", "--to", "en", "--n-best", "2")
        assert result.exit_code == 2
        assert "--beam" in result.output

    def test_a_bundle_that_is_none_is_refused_in_one_sentence(self, tmp_path: Path) -> None:
        """No traceback for a wrong path."""
        result = self.invoke("--from", "pt", "--to", "en", "--bundle", str(tmp_path))
        assert result.exit_code == 1
        assert "Traceback" not in result.output
        assert str(tmp_path) in result.output.replace("\n", "")


def test_lines_that_may_be_wrong_are_told_on_standard_error() -> None:
    """How many, why, and where to look first."""
    report = LineReport(1200, 2, Counter(length=1, number_changed=2), 17)
    told = "2 of 1,200 lines may be wrong or incomplete (length: 1, number_changed: 2); the first one is line 17."
    assert _complaint(report) == told
