"""A line in, a line out: order, formats, endings; without files and without models."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.service.commands.translate_lines import LineFormat, LineReport, translate_lines
from dragoman.service.engine.job import FinishReason
from dragoman.service.translation.contract import Alternative, Segment, SegmentWarning, Translation

LINES = st.lists(st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]), max_size=8), max_size=40)


def segment(source: str, text: str, score: float = -1.0, num_tokens: int = 2, **more: object) -> Segment:
    return Segment(source, text, score, more.pop("reason", FinishReason.EOS), num_tokens, **more)


def shouted(line: str) -> Translation:
    return Translation(line.upper(), "pt", None, (segment(line, line.upper()),), ("", ""))


async def shout(lines: Sequence[str]) -> list[Translation]:
    await asyncio.sleep(0)
    return [shouted(line) for line in lines]


async def windows_of(*windows: Sequence[str]) -> AsyncIterator[Sequence[str]]:
    for window in windows:
        yield window


def run(windows: AsyncIterator[Sequence[str]], translate=shout, shape: LineFormat | None = None) -> list[str]:
    output: list[str] = []
    asyncio.run(translate_lines(windows, translate, output.extend, shape or LineFormat()))
    return output


@given(st.lists(LINES, max_size=4))
def test_every_line_comes_out_once_and_in_order(windows: list[list[str]]) -> None:
    """Sorting by length is nobody's business but ours."""
    expected = [line.upper().replace("\n", " ") if line.strip() else line for window in windows for line in window]
    assert run(windows_of(*windows)) == expected


def test_lines_of_like_length_are_translated_together() -> None:
    """What is encoded together should need no padding."""
    seen: list[list[int]] = []

    async def translate(lines: Sequence[str]) -> list[Translation]:
        seen.append([len(line) for line in lines])
        return await shout(lines)

    run(windows_of(["x" * (1 + number * 37 % 600) for number in range(600)]), translate)
    assert [len(chunk) for chunk in seen] == [256, 256, 88]
    lengths = [length for chunk in seen for length in chunk]
    assert lengths == sorted(lengths, reverse=True), "the longest first: a batch must not end in one long line"


def test_a_window_is_written_before_the_next_one_comes() -> None:
    """Whoever types a line sees its translation, not the end of the input."""
    written: list[str] = []
    answered = asyncio.Event()

    def write(lines: Sequence[str]) -> None:
        written.extend(lines)
        answered.set()

    async def patient() -> AsyncIterator[Sequence[str]]:
        for number in range(3):
            answered.clear()
            yield [f"line {number}"]
            await answered.wait()

    asyncio.run(translate_lines(patient(), shout, write, LineFormat()))
    assert written == ["LINE 0", "LINE 1", "LINE 2"]


def test_what_was_read_before_the_input_broke_is_written() -> None:
    """A broken line does not cost those before it."""
    written: list[str] = []

    async def breaking() -> AsyncIterator[Sequence[str]]:
        yield ["one"]
        yield ["two"]
        raise ValueError("line 3")

    with pytest.raises(ValueError, match="line 3"):
        asyncio.run(translate_lines(breaking(), shout, written.extend, LineFormat()))
    assert written == ["ONE", "TWO"]


def test_a_translation_that_fails_ends_everything() -> None:
    """No line is left out in silence."""

    async def fail(lines: Sequence[str]) -> list[Translation]:
        raise RuntimeError("engine")

    with pytest.raises(RuntimeError, match="engine"):
        run(windows_of(["one"], ["two"], ["three"], ["four"]), fail)


def test_a_writer_that_fails_ends_everything() -> None:
    """`head` has seen enough."""

    def write(lines: Sequence[str]) -> None:
        raise BrokenPipeError

    async def endless() -> AsyncIterator[Sequence[str]]:
        while True:
            yield ["line"]

    with pytest.raises(BrokenPipeError):
        asyncio.run(translate_lines(endless(), shout, write, LineFormat()))


def test_an_interruption_cancels_what_is_under_way() -> None:
    """Ctrl-C does not wait for a window."""
    cancelled: list[bool] = []

    async def slow(lines: Sequence[str]) -> list[Translation]:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise
        return []

    async def interrupted() -> None:
        work = asyncio.create_task(translate_lines(windows_of(["one"]), slow, print, LineFormat()))
        await started.wait()
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work

    started = asyncio.Event()
    asyncio.run(interrupted())
    assert cancelled == [True]


class TestFormat:
    def test_scores_stand_behind_a_tab(self) -> None:
        """The last tab of a line, whatever tabs the text has."""
        assert LineFormat(scores=True).write("a\tb", shouted("a\tb")) == ["A\tB\t-1.000000"]

    def test_blank_lines_pass_through(self) -> None:
        """Paragraphs stay paragraphs, and columns stay columns."""
        assert LineFormat().write("  ", None) == ["  "]
        assert LineFormat(n_best=2, scores=True).write("", None) == ["\t0.000000"] * 2

    def test_n_best_gives_exactly_so_many_lines(self) -> None:
        """Line k of the input begins at line k x N of the output, always."""
        others = (Alternative("hi", -2.0),)
        translation = Translation("hello", "pt", None, (segment("ola", "hello", alternatives=others),), ("", ""))
        assert LineFormat(n_best=3).write("ola", translation) == ["hello", "hi", ""]
        scored = LineFormat(n_best=3, scores=True).write("ola", translation)
        assert [line.split("\t")[1] for line in scored] == ["-1.000000", "-2.000000", str(-math.inf)]

    def test_alternatives_keep_what_stands_around_the_segment(self) -> None:
        """Indentation and bullets belong to the line."""
        others = (Alternative("hi", -2.0),)
        translation = Translation("- hello ", "pt", None, (segment("ola", "hello", alternatives=others),), ("- ", " "))
        assert LineFormat(n_best=2).write("- ola ", translation) == ["- hello ", "- hi "]

    def test_the_nth_of_a_line_in_segments_joins_the_nth_of_each(self) -> None:
        """A line too long for the model still has alternatives; one that lacks an nth gives its last."""
        parts = (
            segment("um", "one", -1.0, 1, alternatives=(Alternative("a", -3.0),)),
            segment("dois", "two", -2.0, 3),
        )
        translation = Translation("one two", "pt", None, parts, ("", " ", ""))
        lines = LineFormat(n_best=2, scores=True).write("um dois", translation)
        assert lines == [f"one two\t{-7 / 4:.6f}", f"a two\t{-9 / 4:.6f}"]

    def test_a_line_break_of_the_model_does_not_shift_the_lines(self) -> None:
        """One line in, one line out, whatever the model says."""
        assert LineFormat().write("x", Translation("a\nb", "pt", None, (segment("x", "a\nb"),), ("", ""))) == ["a b"]


def test_the_report_counts_lines_that_are_not_whole() -> None:
    """Nothing is lost silently."""
    report = LineReport()
    report.note(None)
    report.note(shouted("fine"))
    losses = [{"warnings": (loss,)} for loss in (SegmentWarning.PLACEHOLDER_LOST, SegmentWarning.EMPTY_TRANSLATION)]
    for more in ({"reason": FinishReason.LENGTH}, *losses):
        both = (segment("x", "x", **more), segment("y", "y", **more))
        report.note(Translation("xy", "pt", None, both, ("", "", "")))
    assert (report.num_lines, report.num_troubled) == (5, 3)
    assert report.troubles == {"length": 1, "placeholder_lost": 1, "empty_translation": 1}
    assert report.first_troubled_line == 3
