"""Memory after many segments of many shapes, against after a few: a server that runs for months must not grow.

    python -m bench.memory [quick | full] [--bundle DIR]

One engine with one runner, turned by hand, gets segments of every source length from 1 to the bundle's limit, greedy
and by beams, in waves of random size at random turns, so that its graphs meet as many shapes as can be: encoder runs
by sentences and length, decoder steps by rows and candidates. Tokens are random and translations short, because memory
depends on shapes and not on sense. What is read is the resident set of this process, after a garbage
collection; it loads nothing that trains, beside which growth would look smaller than it is.
"""

import gc
import random
from collections.abc import Callable, Iterator
from typing import Any

import onnxruntime as ort
import psutil

from bench.harness import Figure, Profile, Ratio, Report, Table, command, steps
from dragoman.service.bundles.manifest import Bundle, read_bundle
from dragoman.service.engine.job import DecodingOptions, DecodingRules, Job
from dragoman.service.engine.loop import Engine
from dragoman.service.engine.rows import Ints
from dragoman.service.engine.runner import OrtRunner
from dragoman.service.engine.seams import Candidates, MultiStep
from dragoman.service.engine.sessions import OrtSessions

BAR = 1.02
ROWS = 64  # the server's default
ENCODE_TOKENS = 256  # that join at one turn, also the server's default
MAX_BEAM = 32  # far beyond what the server allows by default: each width is another number of candidates
MAX_NEW_TOKENS = 4
FIRST_WORD = 300  # lower ids are control symbols and bytes
MARKS = {"quick": (1_000, 2_000, 5_000), "full": (1_000, 2_000, 5_000, 10_000, 20_000, 35_000, 50_000)}

Shape = tuple[str, int, int]  # graph, and what its inputs differ in
Row = tuple[int, int, int, float]  # segments, shapes of the encoder and of the decoder so far, megabytes


class WatchedEncoder:
    """An encoder that notes the shapes it meets."""

    def __init__(self, session: ort.InferenceSession, shapes: set[Shape]) -> None:
        self._session, self._shapes = session, shapes

    def run(self, names: list[str] | None, feeds: dict[str, Ints]) -> list[Any]:
        self._shapes.add(("encoder", *feeds["source"].shape))
        return self._session.run(names, feeds)


class WatchedRunner(OrtRunner):
    """A runner whose graphs note the shapes they meet."""

    def __init__(self, sessions: OrtSessions, max_rows: int) -> None:
        self.shapes: set[Shape] = set()
        sessions.encoder = WatchedEncoder(sessions.encoder, self.shapes)
        super().__init__(sessions, max_rows)

    def step(self, next_ids: Ints, k: int, wanted: Ints | None = None) -> Candidates:
        self.shapes.add(("decoder", len(next_ids), k))
        return super().step(next_ids, k, wanted)

    def multi_step(self, next_ids: Ints, most: int, end_id: int, go_on: Callable[[int], bool]) -> MultiStep:
        self.shapes.add(("decoder", len(next_ids), 1))
        return super().multi_step(next_ids, most, end_id, go_on)


def waves(bundle: Bundle, rng: random.Random) -> Iterator[list[Job]]:
    """For ever: some segments of one length and one way to decode, as many as may join together."""
    while True:
        length = rng.randint(1, bundle.limits.max_source_tokens)
        width = rng.choice([1, rng.randint(2, MAX_BEAM)])
        count = rng.randint(1, max(1, min(ROWS // width, ENCODE_TOKENS // length)))
        options = DecodingOptions(width, max_new_tokens=rng.randint(1, MAX_NEW_TOKENS))
        words = range(FIRST_WORD, bundle.architecture.vocab_size)
        yield [Job([*rng.choices(words, k=length - 1), bundle.special_ids.eos], options) for _ in range(count)]


class Traffic:
    """An engine, and the segments that it has answered."""

    def __init__(self, bundle: Bundle, seed: int) -> None:
        self._rng = random.Random(seed)
        self._waves = waves(bundle, self._rng)
        self.runner = WatchedRunner(OrtSessions(bundle, threads=1, provider="cpu"), ROWS)
        self._engine = Engine([self.runner], DecodingRules.of(bundle))
        self.num_segments = 0

    def go_on(self, num_segments: int) -> None:
        """Until so many segments have been answered; then nothing is under way."""
        while self.num_segments < num_segments:
            wave = next(self._waves)
            self._engine.submit_all(wave)
            self.num_segments += len(wave)
            for _ in range(self._rng.randint(0, 2 * MAX_NEW_TOKENS)):
                self._engine.turn()
            while self._engine.snapshot().queued_segments > ROWS:
                self._engine.turn()
        while self._engine.turn():
            pass


def resident_megabytes() -> float:
    gc.collect()
    return psutil.Process().memory_info().rss / 1e6


def measure(profile: Profile, seed: int = 1) -> list[Row]:
    """A row for each mark, read when nothing is under way."""
    traffic, marks, rows = Traffic(read_bundle(profile.bundle), seed), MARKS[profile.name], list[Row]()
    with steps(profile, "memory", len(marks)) as begin:
        for mark in marks:
            begin(f"{mark} segments")
            traffic.go_on(mark)
            kinds = [kind for kind, _, _ in traffic.runner.shapes]
            rows.append((traffic.num_segments, kinds.count("encoder"), kinds.count("decoder"), resident_megabytes()))
    return rows


def growth(first: Row, last: Row, bar: float | None) -> Ratio:
    what = f"resident memory after {last[0]} segments of {last[1] + last[2]} shapes"
    ratio = last[3] / first[3]
    against = f"after {first[0]} segments"
    return Ratio(what, against, last[3], first[3], "MB", ratio, ratio, ratio, bar, higher_is_better=False)


def plot(rows: list[Row]) -> Figure:
    points = [[float(segments), megabytes] for segments, _, _, megabytes in rows]
    limit = {"2 % above the first": rows[0][3] * BAR}
    return Figure("memory", "Resident memory", "segments", "MB", {"one runner": points}, lines=limit)


def run(profile: Profile) -> Report:
    rows = measure(profile)
    columns = ["segments", "encoder shapes", "decoder shapes", "MB"]
    return Report(
        name="memory",
        title="Memory over many shapes",
        tables=[Table("Memory of the process", columns, [list(row) for row in rows])],
        ratios=[growth(rows[0], rows[-1], profile.choose(None, BAR))],
        figures=[plot(rows)],
        notes=[f"One runner of {ROWS} rows. A shape is counted once, where its graph runs."],
    )


if __name__ == "__main__":
    command(run, __doc__)
