"""The policy alone: no engine, no runner, no time but what the tests say."""

from __future__ import annotations

import contextlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.service.engine.job import DecodingOptions, Job, QueueFull
from dragoman.service.engine.scheduler import EngineSettings, Scheduler, Turn, like_lengths


def job(length: int = 10, request: object = None, beam_size: int = 1, deadline_at: float | None = None) -> Job:
    return Job([7] * length, DecodingOptions(beam_size=beam_size), request, deadline_at)


def jobs(count: int, length: int = 10, request: object = "document", beam_size: int = 1) -> list[Job]:
    return [job(length, request, beam_size) for _ in range(count)]


def scheduler(max_rows: int = 8, loops: int = 1, **settings: object) -> Scheduler:
    return Scheduler(EngineSettings(**settings), [max_rows] * loops)


def requests_of(admitted: list[Job]) -> list[object]:
    return [each.request for each in admitted]


class TestQueue:
    def test_queue_refuses_when_its_tokens_are_used_up(self) -> None:
        """Memory and waiting are bounded by tokens, not by requests."""
        policy = scheduler(max_queued_tokens=100)
        policy.offer([job(60)])
        policy.offer([job(40)])
        with pytest.raises(QueueFull):
            policy.offer([job(1)])
        assert (policy.queued_tokens, policy.queued_segments) == (100, 2)

    def test_jobs_offered_together_are_taken_together_or_not_at_all(self) -> None:
        """Half a document in the queue is work for nobody."""
        policy = scheduler(max_queued_tokens=100)
        policy.offer([job(50)])
        with pytest.raises(QueueFull):
            policy.offer(jobs(6, length=10))
        assert policy.queued_segments == 1

    def test_an_empty_queue_takes_what_is_larger_than_itself(self) -> None:
        """A request that never fits would be told to try again for ever."""
        policy = scheduler(max_queued_tokens=100)
        policy.offer(jobs(20, length=10))
        assert policy.queued_tokens == 200

    def test_a_refusal_says_when_half_of_the_queue_will_be_gone(self) -> None:
        """Retry-After follows the measured speed: 50 tokens at 2 loops of 10 tokens a second."""
        policy = scheduler(loops=2, max_queued_tokens=100)
        policy.offer([job(100)])
        policy.note_turn(0, Turn(rows=1, step_seconds=1.0, drained_tokens=10, seconds=1.0))
        with pytest.raises(QueueFull) as refusal:
            policy.offer([job(1)])
        assert refusal.value.retry_after_seconds == pytest.approx(2.5)

    def test_a_refusal_before_anything_was_measured_says_one_second(self) -> None:
        """A number is always there for the header."""
        policy = scheduler(max_queued_tokens=10)
        policy.offer([job(10)])
        with pytest.raises(QueueFull) as refusal:
            policy.offer([job(1)])
        assert refusal.value.retry_after_seconds == 1.0

    def test_a_document_larger_than_the_budget_has_no_line_refused(self) -> None:
        """It would be minutes until it has drained; lines are answered beside it all the while."""
        policy = scheduler(max_queued_tokens=100, bulk_tokens=50)
        policy.offer(jobs(40, length=10))
        policy.offer([job(50)])
        policy.offer([job(50)])
        with pytest.raises(QueueFull):
            policy.offer([job(1)])
        assert policy.queued_tokens == 500

    def test_a_line_that_waits_has_no_document_refused(self) -> None:
        """A server that always has a line in its queue would never take a large document."""
        policy = scheduler(max_queued_tokens=100, bulk_tokens=50)
        policy.offer([job(10)])
        policy.offer(jobs(40, length=10))
        assert policy.queued_tokens == 410

    def test_a_second_document_is_told_when_half_of_the_first_will_be_gone(self) -> None:
        """Its wait is for the documents, not for the lines: 200 of 400 tokens at 10 a second."""
        policy = scheduler(max_queued_tokens=100, bulk_tokens=50)
        policy.offer([job(50)])
        policy.offer(jobs(40, length=10))
        policy.note_turn(0, Turn(rows=1, step_seconds=1.0, drained_tokens=10, seconds=1.0))
        with pytest.raises(QueueFull) as refusal:
            policy.offer(jobs(6, length=10, request="another"))
        assert refusal.value.retry_after_seconds == pytest.approx(20)

    def test_more_of_a_document_is_bulk_however_little_it_is(self) -> None:
        """A document that comes in pieces must not take the lines' room."""
        policy = scheduler(max_queued_tokens=100, bulk_tokens=50)
        policy.offer(jobs(5, length=10))  # a line, so far
        policy.offer([job(50)])
        policy.offer(jobs(5, length=10))  # now all of it is bulk, and the lines have room again
        policy.offer([job(50)])
        with pytest.raises(QueueFull):
            policy.offer(jobs(1, length=10))

    @given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 4), st.integers(1, 30)), max_size=20), st.data())
    def test_both_parts_are_empty_when_nobody_waits(
        self, offers: list[tuple[str, int, int]], data: st.DataObject
    ) -> None:
        """Were a token left in the books of either, it would one day refuse everybody."""
        policy = scheduler(max_rows=4, max_queued_tokens=100, bulk_tokens=40)
        waiting: list[Job] = []
        for request, count, length in offers:
            offered = jobs(count, length, request)
            with contextlib.suppress(QueueFull):
                policy.offer(offered)
                waiting += offered
            if data.draw(st.booleans()):
                for each in policy.admit(0):
                    policy.retire(0, each)
            if waiting and data.draw(st.booleans()):
                policy.withdraw(waiting.pop())
        policy.withdraw_all()
        assert policy.queued_tokens == 0
        policy.offer([job(40) for _ in range(3)])
        policy.offer(jobs(30, length=10, request="document"))

    def test_withdrawn_jobs_give_their_tokens_back_and_never_join(self) -> None:
        """A client that left makes room at once."""
        policy = scheduler()
        first, second = job(10), job(20)
        policy.offer([first, second])
        assert policy.withdraw(first)
        assert not policy.withdraw(first)
        assert policy.queued_tokens == 20
        assert policy.admit(0) == [second]

    def test_a_deadline_that_passes_in_the_queue_is_never_admitted(self) -> None:
        """Work that nobody waits for is not begun."""
        policy = scheduler()
        late, later, patient = job(deadline_at=5.0), job(deadline_at=9.0), job()
        policy.offer([later, patient, late])
        assert policy.expire(4.9) == []
        assert policy.expire(5.0) == [late]
        assert policy.admit(0) == [later, patient]
        assert policy.expire(100.0) == []

    def test_old_deadlines_do_not_pile_up(self) -> None:
        """Jobs that were served long before their deadline leave nothing behind."""
        policy = scheduler(max_rows=8)
        for _ in range(1000):
            policy.offer([job(deadline_at=1e9)])
            for admitted in policy.admit(0):
                policy.retire(0, admitted)
        assert len(policy._deadlines) < 100
        assert not policy._requests


class TestFairness:
    def test_requests_take_turns(self) -> None:
        """Three documents get a third each, whoever came first."""
        policy = scheduler(max_rows=9, bulk_tokens=10_000)
        for name in "abc":
            policy.offer(jobs(20, request=name))
        assert sorted(requests_of(policy.admit(0))) == list("aaabbbccc")

    def test_a_line_goes_next_whatever_waits_in_a_document(self) -> None:
        """One line beside five hundred sentences waits for one row, not for the document."""
        policy = scheduler(max_rows=8, interactive_share=0.0)
        policy.offer(jobs(500))
        running = policy.admit(0)
        assert len(running) == 8
        policy.offer([job(request="line")])
        policy.retire(0, running[0])
        assert requests_of(policy.admit(0)) == ["line"]

    def test_rows_are_left_free_for_lines(self) -> None:
        """A document never takes the whole batch, so that a line need not wait at all."""
        policy = scheduler(max_rows=16, interactive_share=0.25)
        policy.offer(jobs(100))
        assert len(policy.admit(0)) == 12
        policy.offer([job(request="line")])
        assert requests_of(policy.admit(0)) == ["line"]

    def test_a_stream_of_lines_does_not_starve_a_document(self) -> None:
        """With more lines than rows for ever, the document still gets a share."""
        policy = scheduler(max_rows=2, interactive_share=0.0)
        policy.offer(jobs(100, length=10))
        served = 0
        running: list[Job] = []
        for turn in range(400):
            policy.offer([job(request=("line", turn, number)) for number in range(2)])
            for each in running:
                policy.retire(0, each)
            running = policy.admit(0)
            served += requests_of(running).count("document")
        assert served >= 5

    def test_a_document_that_was_held_back_does_not_hold_up_lines_in_turn(self) -> None:
        """Bulk whose rows were capped has turns to make up for; a line that comes then is not behind all of them."""
        policy = scheduler(max_rows=64, encode_budget_tokens=100, step_budget_seconds=0.001)
        policy.note_turn(0, Turn(64, 1.0, 0, 1.0))  # so slow that bulk gets its least while lines run
        policy.offer(jobs(400))
        for number in range(300):
            policy.offer([job(request=("line", number))])
            for each in policy.admit(0):
                if each.request != "document":
                    policy.retire(0, each)
        for each in policy.running(0):
            policy.retire(0, each)
        policy.offer([job(request="newcomer")])
        assert "newcomer" in requests_of(policy.admit(0))

    def test_a_wide_beam_counts_for_its_width(self) -> None:
        """Rows are what is scarce: a request with a beam of four gets a quarter of the turns."""
        policy = scheduler(max_rows=4, bulk_tokens=100_000, encode_budget_tokens=10_000)
        policy.offer(jobs(50, request="wide", beam_size=4))
        policy.offer(jobs(50, request="narrow"))
        rows = {"wide": 0, "narrow": 0}
        for _ in range(20):
            for each in policy.admit(0):
                rows[each.request] += each.options.beam_size
                policy.retire(0, each)
        assert 0.5 < rows["wide"] / rows["narrow"] < 2.0

    def test_a_beam_waits_at_the_head_until_all_its_rows_are_free(self) -> None:
        """Narrow jobs that came later do not take the rows that it waits for."""
        policy = scheduler(max_rows=4)
        policy.offer([job(request=name) for name in "abc"])
        running = policy.admit(0)
        policy.offer([job(request="beam", beam_size=4)])
        policy.offer([job(request="later")])
        assert policy.admit(0) == []
        for each in running:
            policy.retire(0, each)
        assert requests_of(policy.admit(0)) == ["beam"]


class TestBudgets:
    def test_no_more_source_tokens_join_than_one_pause_may_encode(self) -> None:
        """Encoding stalls whoever is running."""
        policy = scheduler(max_rows=64, encode_budget_tokens=100)
        policy.offer(jobs(20, length=30))
        assert len(policy.admit(0)) == 3
        assert len(policy.admit(0)) == 3

    def test_a_document_encodes_only_a_bite_while_a_line_runs(self) -> None:
        """What a document encodes, the line beside it waits for; alone it may use the whole pause."""
        policy = scheduler(max_rows=64, encode_budget_tokens=800, step_budget_seconds=1.0)
        policy.offer([job(10, request="line")])
        policy.offer(jobs(100, length=30))
        first = policy.admit(0)
        assert requests_of(first).count("document") == 3  # 90 of the 100 tokens that are an eighth
        policy.retire(0, next(each for each in first if each.request == "line"))
        assert sum(each.num_source_tokens for each in policy.admit(0)) == 780

    def test_a_source_longer_than_the_budget_joins_alone(self) -> None:
        """A budget is not a refusal."""
        policy = scheduler(encode_budget_tokens=100)
        policy.offer([job(300, request="long"), job(10, request="short")])
        assert [len(each.source_ids) for each in policy.admit(0)] == [300]
        assert [len(each.source_ids) for each in policy.admit(0)] == [10]

    def test_bulk_gets_no_more_rows_than_the_step_time_allows_while_lines_run(self) -> None:
        """Learned: 1 ms and 0.5 ms a row, so that 10 ms are 18 rows: one for the line, 17 for the document."""
        policy = scheduler(max_rows=64, step_budget_seconds=0.010, encode_budget_tokens=10_000)
        for rows in (1, 8, 32, 64) * 10:
            policy.note_turn(0, Turn(rows, 0.001 + 0.0005 * rows, 0, 0.01))
        policy.offer([job(request="line")])
        policy.offer(jobs(100))
        admitted = policy.admit(0)
        assert len(admitted) == 18
        policy.retire(0, next(each for each in admitted if each.request == "line"))
        assert len(policy.admit(0)) == 56 - 17

    def test_bulk_rows_beyond_the_step_time_pause_while_lines_run(self) -> None:
        """A line that meets a full batch does not wait for all of it at every step."""
        policy = scheduler(max_rows=64, step_budget_seconds=0.010, encode_budget_tokens=10_000)
        for rows in (1, 8, 32, 64) * 10:
            policy.note_turn(0, Turn(rows, 0.001 + 0.0005 * rows, 0, 0.01))
        policy.offer(jobs(100))
        running = policy.admit(0)
        assert (len(running), policy.step_limit(0)) == (56, 64), "nobody is in a hurry"
        policy.offer([job(request="line")])
        (line,) = policy.admit(0)
        assert all(each.bulk for each in running)
        assert not line.bulk
        assert policy.step_limit(0) == 18
        policy.retire(0, line)
        assert policy.step_limit(0) == 64

    def test_bulk_moves_on_even_when_steps_are_slow(self) -> None:
        """However slow the machine, a document gets an eighth of the rows."""
        policy = scheduler(max_rows=64, step_budget_seconds=0.001, encode_budget_tokens=10_000)
        policy.note_turn(0, Turn(64, 1.0, 0, 1.0))
        policy.offer([job(request="line")])
        policy.offer(jobs(100))
        assert requests_of(policy.admit(0)).count("document") == 8

    @pytest.mark.parametrize("max_rows", [2, 4, 7])
    def test_bulk_moves_on_in_a_small_batch_too(self, max_rows: int) -> None:
        """An eighth of few rows is none: then a document's rows never stepped while any line ran."""
        policy = scheduler(max_rows, step_budget_seconds=0.001, bulk_tokens=30)
        policy.note_turn(0, Turn(rows=1, step_seconds=1.0, drained_tokens=0, seconds=1.0))
        policy.offer([job(request="line"), *jobs(10)])
        policy.admit(0)
        assert policy.step_limit(0) == 2

    def test_lines_do_not_keep_a_document_out_by_their_tokens(self) -> None:
        """Without a row of its own it waits at the head of the line; three lines leave and come in every turn."""
        policy = scheduler(max_rows=64, max_batch_tokens=400, interactive_share=0.0)
        running: list[Job] = []
        policy.offer([job(request=("line", number)) for number in range(60)])
        while admitted := policy.admit(0):
            running += admitted
        document = jobs(60)
        policy.offer(document)
        for turn in range(600):
            for each in running[:3]:
                policy.retire(0, each)
            policy.offer([job(request=("later line", turn, number)) for number in range(3)])
            running = running[3:] + policy.admit(0)
        assert sum(policy.withdraw(each) for each in document) < 50  # a fair share is not all, but it is not nothing

    def test_bulk_joins_in_bites(self) -> None:
        """Encoding one sentence at a time would waste the encoder; lines are not held up by it."""
        policy = scheduler(max_rows=64, interactive_share=0.0, encode_budget_tokens=10_000)
        policy.offer(jobs(200))
        running = policy.admit(0)
        for each in running[:7]:
            policy.retire(0, each)
        assert policy.admit(0) == []
        policy.retire(0, running[7])
        assert len(policy.admit(0)) == 8

    def test_long_sentences_share_a_batch_with_fewer_others(self) -> None:
        """Their caches would outgrow the processor's: the batch is bounded by tokens as well as by rows."""
        policy = scheduler(max_rows=64, max_batch_tokens=400, interactive_share=0.0, encode_budget_tokens=10_000)
        policy.offer(jobs(100, length=50))
        running = policy.admit(0)
        assert len(running) == 8
        policy.retire(0, running[0])
        assert len(policy.admit(0)) == 1

    def test_a_beam_counts_its_source_once_for_each_row(self) -> None:
        """Every row has caches of its own."""
        policy = scheduler(max_rows=64, max_batch_tokens=400, encode_budget_tokens=10_000)
        policy.offer(jobs(10, length=50, beam_size=4))
        assert len(policy.admit(0)) == 2

    def test_a_sentence_beyond_the_batch_s_tokens_runs_alone(self) -> None:
        """A bound on company is not a refusal."""
        policy = scheduler(max_rows=64, max_batch_tokens=40, encode_budget_tokens=10_000)
        policy.offer([job(90, request="long"), job(10, request="short")])
        first = policy.admit(0)
        assert requests_of(first) == ["long"]
        assert policy.admit(0) == []
        policy.retire(0, first[0])
        assert requests_of(policy.admit(0)) == ["short"]

    def test_bulk_joins_in_bites_of_tokens_too(self) -> None:
        """Where tokens bound the batch, one row that is free is no reason to encode one sentence."""
        policy = scheduler(max_rows=64, max_batch_tokens=640, interactive_share=0.0, encode_budget_tokens=10_000)
        policy.offer(jobs(200, length=20))
        running = policy.admit(0)
        assert len(running) == 32
        for each in running[:3]:
            policy.retire(0, each)
        assert policy.admit(0) == []
        policy.retire(0, running[3])
        assert len(policy.admit(0)) == 4

    def test_bulk_that_joins_together_is_of_like_length(self) -> None:
        """Padding is the largest waste of an encoder."""
        policy = scheduler(max_rows=64, interactive_share=0.0, encode_budget_tokens=100)
        policy.offer([job(length, request="document") for length in [10, 50] * 30])
        lengths = [len(each.source_ids) for each in policy.admit(0)]
        assert lengths == [10] * len(lengths)
        assert len(lengths) >= 7

    def test_no_length_waits_for_ever(self) -> None:
        """Even beside lines that always join first, the odd sentence of a document comes to its turn."""
        policy = scheduler(max_rows=64, bulk_tokens=50)
        odd = job(60, request="document")
        policy.offer([job(10, request="document"), odd])
        for turn in range(200):
            policy.offer([job(10, request=("line", turn)), job(10, request="document")])
            admitted = policy.admit(0)
            for each in admitted:
                policy.retire(0, each)
            if odd in admitted:
                return
        pytest.fail("the odd sentence never joined")

    def test_static_batching_joins_only_an_empty_batch(self) -> None:
        """The switch that benchmarks compare with."""
        policy = scheduler(max_rows=4, continuous=False, encode_budget_tokens=1)
        policy.offer(jobs(6))
        running = policy.admit(0)
        assert len(running) == 4
        policy.retire(0, running[0])
        assert policy.admit(0) == []
        for each in running[1:]:
            policy.retire(0, each)
        assert len(policy.admit(0)) == 2


@given(
    st.lists(
        st.tuples(st.integers(1, 60), st.integers(0, 4), st.integers(1, 4), st.booleans()), min_size=1, max_size=60
    ),
    st.integers(4, 16),
    st.integers(1, 2),
    st.sampled_from([math.inf, 100, 7]),
)
def test_no_row_is_given_twice_and_everybody_is_served(
    arrivals: list[tuple[int, int, int, bool]], max_rows: int, loops: int, max_tokens: float
) -> None:
    """Whatever arrives, reservations stay within the batch and the books return to zero."""
    policy = scheduler(max_rows, loops, bulk_tokens=50, encode_budget_tokens=64, max_batch_tokens=max_tokens)
    waiting = [job(length, request, beam_size) for length, request, beam_size, _ in arrivals]
    leaves_early = [each for each, arrival in zip(waiting, arrivals, strict=True) if arrival[3]]
    policy.offer(waiting)
    withdrawn = [each for each in leaves_early if policy.withdraw(each)]
    served: list[Job] = []
    running: list[list[Job]] = [[] for _ in range(loops)]
    for _ in range(1000):
        for loop in range(loops):
            running[loop] += policy.admit(loop)
            assert sum(each.options.beam_size for each in running[loop]) <= max_rows
            tokens = [each.options.beam_size * each.num_source_tokens for each in running[loop]]
            assert len(tokens) <= 1 or sum(tokens) <= max_tokens
            if running[loop]:
                served.append(running[loop].pop(0))
                policy.retire(loop, served[-1])
    assert sorted(each.serial for each in served + withdrawn) == sorted(each.serial for each in waiting)
    assert (policy.queued_tokens, policy.num_running, policy._num_backlogged, policy._requests) == (0, 0, 0, {})


@given(st.lists(st.integers(1, 100).map(job), max_size=40))
def test_groups_hold_everybody_and_little_padding(several: list[Job]) -> None:
    """Encoded together means of like length."""
    groups = like_lengths(several)
    assert sorted(each.num_source_tokens for group in groups for each in group) == sorted(
        each.num_source_tokens for each in several
    )
    for group in groups:
        lengths = [each.num_source_tokens for each in group]
        assert max(lengths) <= 1.25 * min(lengths) + 2
