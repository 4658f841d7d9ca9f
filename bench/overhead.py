"""What the engine itself costs: Python's time around the runs of the network, by step and by row.

    python -m bench.overhead [quick | full]

The batch is kept full with copies of one sentence, so that every step has the same rows. The sessions are wrapped, and
nothing of the service is changed: what a turn takes beyond the runs of encoder and decoder is Python (queue, search,
bindings, moving rows). The clock is the thread's CPU time, so that other work on the machine does not count as ours.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from bench.harness import Cell, Figure, Profile, Ratio, Report, Table, collected, command, pinned, share, steps
from bench.models import Subject, shipped
from bench.peers.ours import Ours
from bench.peers.peer import encode
from bench.texts import of_length, sentences

ROWS = (1, 8, 32, 64)
BEAM, BEAM_ROWS = 4, (4, 32, 64)
SOURCE_TOKENS = 24  # so many that the first turn, in which a row alone takes some steps at once, is not the last
BAR, BAR_ROWS = 0.05, 32
COLUMNS = ["search", "rows", "step µs", "runtime µs", "Python µs", "Python µs per row", "share of the step"]


class TimedSession:
    """A session that adds up the CPU time of its runs; everything else is the session's own."""

    def __init__(self, session: Any, clock: Callable[[], int] = time.thread_time_ns) -> None:
        self._session, self._clock = session, clock
        self.nanoseconds = self.num_steps = 0
        self._steps = sum(value.name.startswith("ids") for value in session.get_outputs())  # of a decoder's run

    def run(self, *arguments: Any, **options: Any) -> Any:
        began = self._clock()
        result = self._session.run(*arguments, **options)
        self.nanoseconds += self._clock() - began
        return result

    def run_with_iobinding(self, binding: Any, *arguments: Any) -> None:
        began = self._clock()
        self._session.run_with_iobinding(binding, *arguments)
        self.nanoseconds += self._clock() - began
        self.num_steps += self._steps

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)


class Decoders:
    """Both decoders of an engine whose sessions are timed: that of every step, and that of a row alone."""

    def __init__(self, ours: Ours) -> None:
        self._sessions = [session for session in (ours.decoder, ours.multi_step) if session is not None]

    @property
    def nanoseconds(self) -> int:
        return sum(session.nanoseconds for session in self._sessions)

    @property
    def num_steps(self) -> int:
        return sum(session.num_steps for session in self._sessions)


@dataclass
class Turns:
    """What steps of one kind took, in nanoseconds, in all and in the runtime: the means of files."""

    total: list[float] = field(default_factory=list)
    runtime: list[float] = field(default_factory=list)

    @property
    def python(self) -> list[float]:
        return [whole - run for whole, run in zip(self.total, self.runtime, strict=True)]


class Meter:
    """An engine whose sessions are timed."""

    def __init__(self, subject: Subject, rows: int) -> None:
        self._ours = Ours(subject.bundle, rows, guard=True, wrap=TimedSession)
        self._decoders = Decoders(self._ours)

    def steady(self, source: list[int], rows: int, beam_size: int, files: int) -> Turns:
        """The mean step of each file's turns that only step, at exactly so many rows; the first file warms up."""
        turns, encoder, decoders = Turns(), self._ours.encoder, self._decoders
        for number in range(files + 1):
            # Requests of their own: a file would wait for an eighth of the rows to be free before it fills them.
            jobs = [job for _ in range(rows // beam_size) for job in self._ours.jobs([source], beam_size)]
            self._ours.engine.submit_all(jobs)
            whole, runtime, num_steps, busy = 0, 0, 0, True
            while busy:
                full, encoded = self._ours.active_rows() == rows, encoder.nanoseconds
                stepped, steps_before = decoders.nanoseconds, decoders.num_steps
                began = time.thread_time_ns()
                busy = self._ours.engine.turn()
                took = time.thread_time_ns() - began
                if full and encoder.nanoseconds == encoded:
                    whole, runtime = whole + took, runtime + decoders.nanoseconds - stepped
                    num_steps += decoders.num_steps - steps_before
            if number and num_steps:
                turns.total.append(whole / num_steps)
                turns.runtime.append(runtime / num_steps)
        return turns

    def file(self, sources: list[list[int]], beam_size: int) -> Turns:
        """A whole file as one: joining, encoding, moving rows and resolving are in it."""
        before = self._ours.encoder.nanoseconds + self._decoders.nanoseconds
        began = time.thread_time_ns()
        self._ours.translate_ids(sources, beam_size)
        took = time.thread_time_ns() - began
        return Turns([took], [self._ours.encoder.nanoseconds + self._decoders.nanoseconds - before])


def measure(profile: Profile, subject: Subject, source: list[int], rows: int, beam_size: int) -> Turns:
    files = profile.runs or max(profile.choose(4, 12), profile.choose(40, 400) // rows)
    return Meter(subject, rows).steady(source, rows, beam_size, files)


def row_of(turns: Turns, rows: int, beam_size: int) -> list[Cell]:
    step, runtime, python = (statistics.median(side) / 1000 for side in (turns.total, turns.runtime, turns.python))
    name = "greedy" if beam_size == 1 else f"beam {beam_size}"
    numbers = [round(value, 1) for value in (step, runtime, python, python / rows)]
    return [name, rows, *numbers, f"{python / step:.1%}"]


def ratio_of(turns: Turns, rows: int, beam_size: int) -> Ratio:
    python, step = statistics.median(turns.python) / 1000, statistics.median(turns.total) / 1000
    name = "greedy" if beam_size == 1 else f"beam {beam_size}"
    bar = BAR if (rows, beam_size) == (BAR_ROWS, 1) else None
    return share(f"Python, {name}, {rows} rows", "the whole step", python, step, "µs", bar, higher_is_better=False)


def _whole_files(subject: Subject, texts: list[str]) -> list[Ratio]:
    found = []
    for beam_size in (1, BEAM):
        meter, sources = Meter(subject, 64), encode(subject.tokenizer, texts)
        meter.file(sources[:64], beam_size)
        turns = meter.file(sources, beam_size)
        what = f"Python, {'greedy' if beam_size == 1 else f'beam {beam_size}'}, 64 rows"
        found.append(
            share(what, "a whole file", turns.python[0] / 1e6, turns.total[0] / 1e6, "ms", None, higher_is_better=False)
        )
    return found


def run(profile: Profile) -> Report:
    cases = [(rows, 1) for rows in ROWS] + [(rows, BEAM) for rows in BEAM_ROWS]
    subject = shipped(profile.model, profile.bundle)
    texts = subject.fitting(sentences(profile.sources, 4000, subject.bundle.pairs[0].source))
    (source,) = encode(subject.tokenizer, of_length(subject.tokenizer, texts, SOURCE_TOKENS, 1))
    table: list[list[Cell]] = []
    ratios: list[Ratio] = []
    curves: dict[str, list[list[float]]] = {"greedy": [], f"beam {BEAM}": []}
    with steps(profile, "overhead", len(cases)) as begin, pinned(0), collected():
        for rows, beam_size in cases:
            begin(f"{rows} rows, beam {beam_size}")
            turns = measure(profile, subject, source, rows, beam_size)
            table.append(row_of(turns, rows, beam_size))
            ratios.append(ratio_of(turns, rows, beam_size))
            curves["greedy" if beam_size == 1 else f"beam {BEAM}"].append([rows, ratios[-1].ratio])
        ratios += _whole_files(subject, texts[: profile.choose(200, 2000)])
    figure = Figure("overhead", "Python's share of a step", "rows", "share", curves, lines={"bar": BAR})
    notes = [
        "Medians over files of their mean step at exactly so many rows, none with an encoder run; the ends of "
        "sentences are in it. CPU time of the thread that decodes.",
        "Runtime is `run_with_iobinding` of the decoder; Python is all the rest of the engine's turn.",
    ]
    return Report("overhead", "Engine overhead", [Table("One step", COLUMNS, table)], ratios, [figure], notes)


if __name__ == "__main__":
    command(run, __doc__)
