"""The engine turn by turn, on the calling thread, with a clock turned by hand."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable

import numpy as np
import pytest

from dragoman.service.engine.job import (
    DecodingOptions,
    DecodingResult,
    DecodingRules,
    EngineFailure,
    EngineStopped,
    FinishReason,
    Job,
    JobRejected,
    QueueFull,
)
from dragoman.service.engine.loop import Engine
from dragoman.service.engine.promise import Promise
from dragoman.service.engine.scheduler import EngineSettings
from dragoman.service.engine.seams import Candidates, SilentObserver
from tests.clock import Clock
from tests.engine.reverse_runner import EOS, FakeRunner, dream_runner, reversal, reverse_runner

RULES = DecodingRules(max_new_tokens=200)


def sentence(length: int) -> tuple[int, ...]:
    """A source whose translation takes `length` steps, eos included."""
    return (*(4 + number % 50 for number in range(length - 1)), EOS)


def run(engine: Engine, *, turns: int = 10_000) -> None:
    for _ in range(turns):
        if not engine.turn():
            return


def at_step(runner: FakeRunner, number: int, act: Callable[[], object]) -> None:
    """Do something while a step is under way: the loop is not to go on for long before it sees to it."""

    def before_step(step: int) -> None:
        if step == number:
            act()

    runner.before_step = before_step


def note_end(future: Promise[DecodingResult], runner: FakeRunner, ends: dict[str, int], name: str) -> None:
    """At which step of the runner a job was answered."""
    future.add_done_callback(lambda _: ends.__setitem__(name, runner.num_steps))


class Notes:
    """An observer that writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[object, ...]] = []

    def __getattr__(self, name: str):
        return lambda *arguments: self.told.append((name, *arguments))

    def of(self, name: str) -> list[tuple[object, ...]]:
        return [entry[1:] for entry in self.told if entry[0] == name]


class TestJoiningAndLeaving:
    def test_a_short_job_submitted_later_finishes_first(self) -> None:
        """Continuous batching: rows join and leave the running batch at every step."""
        runner, ends = reverse_runner(), dict[str, int]()
        engine = Engine([runner], RULES)
        note_end(engine.submit(Job(sentence(50), DecodingOptions(max_new_tokens=100))), runner, ends, "long")
        at_step(runner, 10, lambda: note_end(engine.submit(Job(sentence(5))), runner, ends, "short"))
        run(engine)
        assert ends == {"short": 16, "long": 50}
        assert runner.widths == [1] * 11 + [2] * 5 + [1] * 34

    def test_static_batching_makes_the_short_job_wait(self) -> None:
        """The switch for benchmarks: the same two jobs, one after the other."""
        runner, ends = reverse_runner(), dict[str, int]()
        engine = Engine([runner], RULES, EngineSettings(continuous=False))
        note_end(engine.submit(Job(sentence(50))), runner, ends, "long")
        at_step(runner, 10, lambda: note_end(engine.submit(Job(sentence(5))), runner, ends, "short"))
        run(engine)
        assert ends == {"long": 50, "short": 55}

    def test_greedy_and_beams_share_the_steps(self) -> None:
        """One batch for all: four jobs of five steps take five steps."""
        runner = reverse_runner(max_rows=16)
        engine = Engine([runner], RULES)
        futures = [engine.submit(Job(sentence(5), DecodingOptions(beam_size=width))) for width in (1, 2, 4, 1)]
        run(engine)
        assert [future.result(timeout=0).hypotheses[0].ids for future in futures] == [sentence(5)[-2::-1]] * 4
        assert max(runner.widths) == 1 + 2 + 4 + 1
        assert runner.widths[0] == 4, "a beam opens after its first step"

    def test_sources_are_encoded_with_their_like(self) -> None:
        """Padding is waste: the short one is encoded apart from the long ones."""
        runner = reverse_runner()
        engine = Engine([runner], RULES)
        for length in (30, 5, 31, 29):
            engine.submit(Job(sentence(length)))
        run(engine)
        assert runner.added == [[5], [29, 30, 31]]

    def test_a_line_beside_a_document_is_done_in_its_own_number_of_steps(self) -> None:
        """Five hundred sentences do not make one line wait."""
        runner = reverse_runner(max_rows=16)
        engine = Engine([runner], RULES)
        engine.submit_all([Job(sentence(20), request="document") for _ in range(500)])
        run(engine, turns=50)
        for _ in range(10):
            line = engine.submit(Job(sentence(6), request=object()))
            run(engine, turns=7)
            assert line.done()

    def test_a_document_pauses_in_part_while_a_line_runs(self, clock: Clock) -> None:
        """Steps get as short as their budget while the line is there; the document's rows go on where they stopped."""
        runner = reverse_runner(max_rows=16)
        step = runner.step

        def slow_step(next_ids: np.ndarray, k: int) -> Candidates:
            clock.now += 0.001 * len(next_ids)
            return step(next_ids, k)

        runner.step = slow_step  # type: ignore[assignment]
        engine = Engine([runner], RULES, EngineSettings(step_budget_seconds=0.0055), clock)
        document = engine.submit_all([Job(sentence(20), request="document") for _ in range(40)])
        ends = dict[str, int]()
        at_step(runner, 10, lambda: note_end(engine.submit(Job(sentence(6), request="line")), runner, ends, "line"))
        run(engine)
        assert ends == {"line": 17}
        assert runner.widths[9:19] == [14, 14, *[5] * 6, 14, 14]
        assert {future.result().hypotheses[0].ids for future in document} == {tuple(range(22, 3, -1))}

    def test_two_loops_share_one_queue(self) -> None:
        """Each loop has its own batch; no job runs twice, none is forgotten."""
        runners = [reverse_runner(max_rows=4), reverse_runner(max_rows=4)]
        engine = Engine(runners, RULES)
        futures = engine.submit_all([Job(sentence(5)) for _ in range(20)])
        while engine.turn(0) | engine.turn(1):
            pass
        assert all(future.done() for future in futures)
        assert all(runner.num_steps > 0 for runner in runners)
        assert sum(map(len, runners[0].added + runners[1].added)) == 20


class TestGivingUp:
    def test_a_deadline_that_expires_in_the_queue_is_never_executed(self, clock: Clock) -> None:
        """Nothing is spent on an answer that comes too late."""
        runner = reverse_runner()
        engine = Engine([runner], RULES, clock=clock)
        future = engine.submit(Job(sentence(5), deadline_at=3.0))
        clock.now = 3.0
        run(engine)
        result = future.result(timeout=0)
        assert (result.hypotheses, result.finish_reason) == ((), FinishReason.DEADLINE)
        assert result.queue_seconds == 3.0
        assert runner.added == []

    def test_a_deadline_in_mid_decode_gives_what_there_is(self, clock: Clock) -> None:
        """Four steps in time, four tokens of text."""
        runner = reverse_runner()
        engine = Engine([runner], RULES, clock=clock)
        runner.before_step = lambda step: setattr(clock, "now", clock.now + 1.0)
        future = engine.submit(Job(sentence(20), DecodingOptions(log_probs=True), deadline_at=3.5))
        run(engine)
        result = future.result(timeout=0)
        assert result.finish_reason is FinishReason.DEADLINE
        assert result.hypotheses[0].ids == sentence(20)[-2::-1][:4]
        assert len(result.hypotheses[0].log_probs) == 4
        assert result.num_steps == runner.num_steps == 4
        assert runner.rows == []

    def test_a_beam_past_its_deadline_gives_its_best(self, clock: Clock) -> None:
        """Partial results know beams too."""
        engine = Engine([reverse_runner()], RULES, clock=clock)
        future = engine.submit(Job(sentence(20), DecodingOptions(beam_size=4, n_best=3), deadline_at=2.5))
        while not future.done():
            engine.turn()
            clock.now += 1.0
        result = future.result(timeout=0)
        assert result.finish_reason is FinishReason.DEADLINE
        assert len(result.hypotheses) == 3
        assert result.hypotheses[0].ids == sentence(20)[-2::-1][:3]

    def test_a_cancelled_job_frees_its_rows_at_the_next_step(self) -> None:
        """A client that leaves takes nothing with it."""
        runner = reverse_runner()
        engine = Engine([runner], RULES)
        leaver = Job(sentence(40), DecodingOptions(beam_size=4))
        stayer = Job(sentence(10))
        engine.submit_all([leaver, stayer])
        run(engine, turns=3)
        assert len(runner.rows) == 5
        leaver.cancel()
        run(engine, turns=1)
        assert len(runner.rows) == 1
        assert leaver.future.result(timeout=0).finish_reason is FinishReason.CANCELLED
        run(engine)
        assert stayer.future.result(timeout=0).hypotheses[0].ids == sentence(10)[-2::-1]

    def test_nothing_waits_for_a_stride_to_end(self, clock: Clock) -> None:
        """A loop that takes several steps in one turn is interrupted by who leaves, and by whose time is over."""
        for wait in ("a cancellation", "a queued job's deadline"):
            runner, ends = reverse_runner(max_rows=1), dict[str, int]()
            engine = Engine([runner], RULES, clock=clock)
            leaver = Job(sentence(40))
            note_end(engine.submit(leaver), runner, ends, "leaver")
            if wait == "a cancellation":
                at_step(runner, 5, leaver.cancel)
            else:
                queued = Job(sentence(40), deadline_at=clock.now + 1.0)
                note_end(engine.submit(queued), runner, ends, "queued")
                at_step(runner, 5, lambda: setattr(clock, "now", clock.now + 1.0))
            run(engine)
            assert ends == ({"leaver": 6} if wait == "a cancellation" else {"queued": 6, "leaver": 40}), wait

    def test_a_job_cancelled_in_the_queue_ends_at_once(self) -> None:
        """Not at the next step: there may be none."""
        runner = reverse_runner()
        engine = Engine([runner], RULES)
        job = Job(sentence(5))
        engine.submit(job)
        job.cancel()
        assert job.future.result(timeout=0).finish_reason is FinishReason.CANCELLED
        assert engine.turn() is False
        assert engine.snapshot().queued_tokens == 0

    def test_a_job_cancelled_before_it_is_submitted_never_runs(self) -> None:
        """The race between a hasty client and the queue has one outcome."""
        engine = Engine([reverse_runner()], RULES)
        job = Job(sentence(5))
        job.cancel()
        engine.submit(job)
        assert job.future.result(timeout=0).finish_reason is FinishReason.CANCELLED

    def test_cancelling_the_future_cancels_the_job(self) -> None:
        """That is what asyncio does when a task is cancelled."""
        runner = reverse_runner()
        engine = Engine([runner], RULES)
        queued, running = Job(sentence(40)), Job(sentence(40))
        engine.submit(running)
        run(engine, turns=2)
        engine.submit(queued)
        assert running.future.cancel()
        assert queued.future.cancel()
        assert engine.turn() is False
        assert runner.rows == []
        assert engine.snapshot().running_segments == 0


class TestStreaming:
    def test_tokens_are_called_back_as_they_are_chosen(self) -> None:
        """Streaming shows the text while it grows."""
        engine = Engine([reverse_runner()], RULES)
        heard: list[int] = []
        engine.submit(Job(sentence(6), on_token=lambda token, log_prob: heard.append(token)))
        run(engine, turns=3)
        assert heard == list(sentence(6)[-2::-1][:3])
        run(engine)
        assert heard == list(sentence(6)[-2::-1])

    def test_a_listener_that_fails_fails_its_own_job_only(self) -> None:
        """One broken connection is not everybody's."""

        def broken(token: int, log_prob: float) -> None:
            raise ConnectionError("gone")

        runner = reverse_runner()
        engine = Engine([runner], RULES)
        bad = engine.submit(Job(sentence(6), on_token=broken))
        good = engine.submit(Job(sentence(6)))
        run(engine)
        with pytest.raises(ConnectionError):
            bad.result(timeout=0)
        assert good.result(timeout=0).finish_reason is FinishReason.EOS
        assert runner.rows == []


class TestRefusals:
    @pytest.mark.parametrize(
        ("job", "reason"),
        [
            (Job(sentence(65)), "65 tokens"),
            (Job([]), "0 tokens"),
            (Job(sentence(5), DecodingOptions(beam_size=9)), "8 rows"),
            (Job(sentence(5), DecodingOptions(max_new_tokens=3, prefix_ids=(4, 5, 6))), "no room"),
            (Job(sentence(5), DecodingOptions(prefix_ids=(4, EOS))), "end-of-sentence"),
        ],
    )
    def test_what_can_never_run_is_refused_before_it_is_queued(self, job: Job, reason: str) -> None:
        """Refusals happen before work starts, and say what to change."""
        engine = Engine([reverse_runner()], RULES)
        with pytest.raises(JobRejected, match=reason):
            engine.submit(job)
        assert engine.snapshot().queued_segments == 0

    @pytest.mark.parametrize(
        "options", [{"beam_size": 0}, {"n_best": 2}, {"n_best": 0}, {"max_new_tokens": 0}], ids=str
    )
    def test_options_that_conflict_are_refused(self, options: dict[str, int]) -> None:
        """In one place, with one sentence."""
        with pytest.raises(JobRejected):
            DecodingOptions(**options)

    def test_a_full_queue_refuses_and_recovers(self) -> None:
        """What was refused is taken once there is room."""
        engine = Engine([reverse_runner(max_rows=1)], RULES, EngineSettings(max_queued_tokens=20))
        for _ in range(2):
            engine.submit(Job(sentence(10)))
        with pytest.raises(QueueFull) as refusal:
            engine.submit(Job(sentence(10)))
        assert refusal.value.retry_after_seconds > 0
        run(engine)
        engine.submit(Job(sentence(10)))


class TestFailure:
    @pytest.mark.parametrize("where", ["add", "step", "keep"])
    def test_a_runner_that_fails_costs_its_batch_and_nothing_else(self, where: str) -> None:
        """The jobs in the batch are told, and the loop goes on with a fresh state."""
        runner = FakeRunner(reversal(), max_rows=2)
        engine = Engine([runner], RULES)
        jobs = [Job(sentence(length)) for length in (4, 6, 8, 10)]
        engine.submit_all(jobs)
        runner.fail_at.add(where)
        run(engine)
        failed = [job for job in jobs if job.future.exception(timeout=0)]
        assert 1 <= len(failed) <= 2
        for job in failed:
            error = job.future.exception(timeout=0)
            assert isinstance(error, EngineFailure)
            assert f"the {where} of this runner fails" in str(error)
        for job in set(jobs) - set(failed):
            assert job.future.result(timeout=0).hypotheses[0].ids == job.source_ids[-2::-1]
        assert runner.rows == []
        assert engine.snapshot().running_segments == 0

    def test_a_runner_that_cannot_even_drop_its_rows_fails_jobs_but_hangs_none(self) -> None:
        """The worst runner still gets every caller an answer."""

        class Broken(FakeRunner):
            def step(self, *arguments: object, **options: object):
                raise RuntimeError("no")

            def keep(self, parents: object) -> None:
                raise RuntimeError("never")

        engine = Engine([Broken(reversal())], RULES)
        for _ in range(3):
            future = engine.submit(Job(sentence(5)))
            run(engine)
            with pytest.raises(EngineFailure):
                future.result(timeout=0)

    def test_an_observer_that_fails_keeps_no_answer_back(self) -> None:
        """Metrics are not worth a sentence."""

        class Grumbler(SilentObserver):
            def finished(self, reason: FinishReason, source_tokens: int, target_tokens: int) -> None:
                raise RuntimeError("no more counting")

        engine = Engine([reverse_runner()], RULES, observer=Grumbler())
        futures = engine.submit_all([Job(sentence(5)), Job(sentence(5))])
        run(engine)
        assert all(future.result(timeout=0).finish_reason is FinishReason.EOS for future in futures)


class TestTelling:
    def test_results_say_where_the_time_went(self, clock: Clock) -> None:
        """Queue, encoder and decoder, apart."""
        runner = reverse_runner()
        engine = Engine([runner], RULES, clock=clock)
        runner.before_step = lambda step: setattr(clock, "now", clock.now + 1.0)
        future = engine.submit(Job(sentence(5)))
        clock.now = 7.0
        run(engine)
        result = future.result(timeout=0)
        assert (result.queue_seconds, result.encode_seconds, result.decode_seconds) == (7.0, 0.0, 5.0)
        assert result.num_steps == 5

    def test_the_observer_is_told_everything(self, clock: Clock) -> None:
        """Metrics are made of this."""
        notes = Notes()
        runner = reverse_runner()
        runner.before_step = lambda step: setattr(clock, "now", clock.now + 0.25)
        engine = Engine([runner], RULES, clock=clock, observer=notes)
        leaver = Job(sentence(9))
        engine.submit(Job(sentence(3))).add_done_callback(lambda _: leaver.cancel())
        engine.submit(leaver)
        run(engine)
        assert notes.of("admitted") == [(0.0,), (0.0,)]
        assert notes.of("encoded") == [(0.0, 3, 1), (0.0, 9, 1)]
        assert notes.of("first_token") == [(0.25,), (0.25,)]
        assert notes.of("stepped") == [([0.25], 2, 2), ([0.25, 0.25], 2, 2)], "first tokens do not wait for others"
        assert notes.of("finished") == [(FinishReason.EOS, 3, 3), (FinishReason.CANCELLED, 9, 3)]
        assert notes.of("cancelled") == [()]
        assert notes.of("busy") == [(0.25,), (0.5,)]

    def test_what_never_ran_counts_no_tokens(self, clock: Clock) -> None:
        """The autoscaler reads them as work that was done; what waited too long is none."""
        notes = Notes()
        engine = Engine([reverse_runner(max_rows=1)], RULES, clock=clock, observer=notes)
        engine.submit(Job(sentence(3)))
        late, left = Job(sentence(9), deadline_at=clock.now + 1), Job(sentence(9))
        engine.submit_all([late, left])
        left.cancel()
        clock.now += 2
        run(engine)
        assert sorted(notes.of("finished")) == [
            (FinishReason.CANCELLED, 0, 0),
            (FinishReason.DEADLINE, 0, 0),
            (FinishReason.EOS, 3, 3),
        ]

    def test_a_queued_job_that_another_replaces_is_counted_nowhere(self) -> None:
        """No caller has left, and the other one is counted."""
        notes = Notes()
        engine = Engine([reverse_runner()], RULES, observer=notes)
        replaced = Job(sentence(3))
        engine.submit(replaced)
        engine.replace(replaced)
        run(engine)
        assert replaced.future.cancelled()
        assert (notes.of("finished"), notes.of("cancelled")) == ([], [])

    def test_a_running_job_that_another_replaces_gives_its_row_up(self) -> None:
        """Two would else translate the same to the end."""
        engine = Engine([reverse_runner()], RULES)
        replaced = Job(sentence(30))
        engine.submit(replaced)
        run(engine, turns=1)
        engine.replace(replaced)
        run(engine)
        assert replaced.future.result(0).finish_reason is FinishReason.CANCELLED

    def test_a_snapshot_shows_rows_and_queue(self) -> None:
        """The live page: who is where, and never what they say."""
        engine = Engine([reverse_runner(max_rows=4)], RULES)
        engine.submit(Job(sentence(5), DecodingOptions(beam_size=3)))
        run(engine, turns=2)
        engine.submit(Job(sentence(20), DecodingOptions(beam_size=2)))
        engine.submit(Job(sentence(30)))
        snapshot = engine.snapshot()
        assert [(row.job, row.beam_size, row.length) for row in snapshot.loops[0]] == [(1, 3, 2)] * 3
        assert sorted(row.beam for row in snapshot.loops[0]) == [0, 1, 2]
        assert (snapshot.active_rows, snapshot.row_capacity) == (3, 4)
        assert (snapshot.queued_segments, snapshot.queued_tokens, snapshot.running_segments) == (2, 50, 1)

    def test_memory_does_not_grow_with_work_done(self) -> None:
        """Nothing refers to a job that is over."""
        engine = Engine([reverse_runner()], RULES)
        jobs = [Job(sentence(5), DecodingOptions(beam_size=1 + number % 3)) for number in range(30)]
        engine.submit_all(jobs)
        run(engine)
        traces = [weakref.ref(job) for job in jobs]
        gc.disable()
        try:
            del jobs
            assert [trace for trace in traces if trace() is not None] == []
        finally:
            gc.enable()


class TestStopping:
    def test_a_stopped_engine_takes_no_more_jobs(self) -> None:
        """Draining means: what was accepted, nothing new."""
        engine = Engine([reverse_runner()], RULES)
        engine.stop(drain=True)
        with pytest.raises(EngineStopped):
            engine.submit(Job(sentence(5)))

    def test_an_engine_that_never_started_fails_what_it_holds(self) -> None:
        """Nobody waits for ever."""
        engine = Engine([reverse_runner(max_rows=1)], RULES)
        futures = engine.submit_all([Job(sentence(5)) for _ in range(3)])
        run(engine, turns=1)
        engine.stop(drain=True)
        for future in futures:
            with pytest.raises(EngineStopped):
                future.result(timeout=0)


def test_rows_that_a_beam_opened_and_left_at_once_are_known_to_the_runner() -> None:
    """A document that joins takes the last of them first; a runner that was not told of them has no such row."""
    settings = EngineSettings(bulk_tokens=5, interactive_share=0.0)
    engine = Engine([dream_runner(4)], DecodingRules(), settings)
    beam = Job([5, EOS], DecodingOptions(beam_size=3, max_new_tokens=1))
    document = [Job([5, 6, EOS], request="document") for _ in range(4)]
    engine.submit(beam)
    engine.submit_all(document)
    run(engine)
    for job in (beam, *document):
        assert job.future.result(0).hypotheses
