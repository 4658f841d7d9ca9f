"""The runner computes what torch computes, row by row, wherever a row lies and whoever lies beside it."""

import logging
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import onnx
import psutil
import pytest
from onnx import helper

from dragoman.export.plain_search import GraphDecoder
from dragoman.model.evaluate import beam, greedy
from dragoman.model.saved import SavedModel
from dragoman.service.bundles.manifest import LEAP, Bundle, BundleError, Precision
from dragoman.service.engine.job import DecodingOptions, DecodingRules, Job
from dragoman.service.engine.loop import Engine
from dragoman.service.engine.runner import OrtRunner
from dragoman.service.engine.sessions import OrtSessions, choose_device

BOS, EOS, NEVER = 2, 3, -1
EMPTY = np.zeros(0, np.int64)


def sources_of(count: int, seed: int = 0, longest: int = 30) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [[*rng.integers(40, 480, rng.integers(0, longest)).tolist(), EOS] for _ in range(count)]


def decode(runner: OrtRunner, sources: list[list[int]], steps: int, k: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Greedy for a fixed number of steps, eos or not: ids and log-probabilities, [rows, steps]."""
    runner.keep(EMPTY)
    runner.add(sources, range(len(sources)))
    tokens, ids, log_probs = np.full(len(sources), BOS), [], []
    for _ in range(steps):
        candidates = runner.step(tokens, k)
        tokens = candidates.ids[:, 0].copy()
        ids.append(tokens)
        log_probs.append(candidates.log_probs[:, 0].copy())
    return np.stack(ids, 1), np.stack(log_probs, 1)


@pytest.fixture(scope="module")
def sessions(tiny_bundle: Bundle) -> OrtSessions:
    return OrtSessions(tiny_bundle)


@pytest.fixture(scope="module")
def float_sessions(tiny_float_bundles: dict[Precision, Bundle]) -> dict[Precision, OrtSessions]:
    return {kind: OrtSessions(bundle) for kind, bundle in tiny_float_bundles.items()}


@pytest.mark.parametrize("state", ["host", "device"])
@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 2e-5), ("fp16", 0.05)])
def test_greedy_equals_torch_on_host_and_device_memory(
    float_sessions: dict[Precision, OrtSessions],
    tiny_saved: SavedModel,
    precision: Precision,
    tolerance: float,
    state: str,
) -> None:
    """State on a device takes other graphs to place and keep rows; on the CPU both paths can be compared."""
    runner = OrtRunner(float_sessions[precision], 8, state=state)  # type: ignore[arg-type]
    sources = sources_of(7)
    wanted = greedy(tiny_saved.network, sources, [12] * 7)
    ids, log_probs = decode(runner, sources, 12)
    for row, hypothesis in enumerate(wanted):
        count = len(hypothesis.ids)
        assert ids[row, :count].tolist() == hypothesis.ids
        np.testing.assert_allclose(log_probs[row, : len(hypothesis.log_probs)], hypothesis.log_probs, atol=tolerance)


@pytest.mark.parametrize("state", ["host", "device"])
def test_the_engine_finds_the_beams_that_torch_finds(
    float_sessions: dict[Precision, OrtSessions], tiny_saved: SavedModel, state: str
) -> None:
    """Runner, search and loop together, beams and greedy rows in one batch: parents repeat, rows move, jobs leave."""
    engine = Engine(
        [OrtRunner(float_sessions["fp32"], 16, state=state)],  # type: ignore[arg-type]
        DecodingRules(max_new_tokens=80, repetition_guard=False),
    )
    sources = sources_of(5, seed=3, longest=12)
    options = [DecodingOptions(size, size, max_new_tokens=15, repetition_guard=False) for size in (4, 1, 4, 3, 4)]
    futures = [engine.submit(Job(source, option)) for source, option in zip(sources, options, strict=True)]
    while engine.turn():
        pass
    for source, option, future in zip(sources, options, futures, strict=True):
        found = future.result(0).hypotheses
        wanted = beam(tiny_saved.network, [source], [15], option.beam_size)[0]
        assert [list(h.ids) for h in found] == [h.ids for h in wanted][: len(found)]
        np.testing.assert_allclose([h.score for h in found], [h.score for h in wanted][: len(found)], atol=2e-5)


def test_int8_equals_the_exporters_own_decoder(sessions: OrtSessions, tiny_bundle: Bundle) -> None:
    """Two decoders that share no code agree to the bit: neither misplaces a row."""
    sources = sources_of(9, seed=1)
    traces = GraphDecoder(tiny_bundle.path, tiny_bundle.state, tiny_bundle.limits).greedy(sources, [10] * 9)
    ids, log_probs = decode(OrtRunner(sessions, 16), sources, 10)
    for row, trace in enumerate(traces):
        assert ids[row, : len(trace.ids)].tolist() == trace.ids
        assert log_probs[row, : len(trace.ids)].tolist() == trace.log_probs


def test_rows_that_trade_places_go_on_undisturbed(sessions: OrtSessions) -> None:
    """Beams reorder: two rows may swap, and one may continue in three places."""
    runner, sources = OrtRunner(sessions, 8), sources_of(4, seed=2)
    expected, _ = decode(runner, sources, 6)
    runner.keep(EMPTY)
    runner.add(sources, range(len(sources)))
    tokens = np.full(4, BOS)
    for _ in range(3):
        tokens = runner.step(tokens, 1).ids[:, 0].copy()
    parents = np.array([1, 0, 3, 3, 2, 1])
    runner.keep(parents)
    tokens = tokens[parents]
    for step in range(3, 6):
        tokens = runner.step(tokens, 1).ids[:, 0].copy()
        np.testing.assert_array_equal(tokens, expected[parents, step])


def test_a_stride_is_its_steps_bit_for_bit(sessions: OrtSessions) -> None:
    """Rows that pause meanwhile go on where they were; who is told may end it early."""
    runner, sources = OrtRunner(sessions, 8), sources_of(5, seed=3)
    ids, log_probs = decode(runner, sources, 12)  # [rows, steps]
    runner.keep(EMPTY)
    runner.add(sources, range(len(sources)))
    told: list[int] = []
    first = runner.multi_step(np.full(3, BOS), 4, NEVER, lambda steps: told.append(steps) is None)
    assert told == [1] * 4, "after every step"
    second = runner.multi_step(first.ids[-1], 8, NEVER, lambda steps: False)
    assert len(second.ids) == 1
    third = runner.multi_step(np.array([*second.ids[-1], BOS, BOS]), 7, NEVER, lambda steps: True)
    for found, expected in (("ids", ids), ("log_probs", log_probs)):
        parts = [getattr(stretch, found).T for stretch in (first, second, third)]  # [rows, steps]
        np.testing.assert_array_equal(np.hstack([parts[0], parts[1], parts[2][:3]]), expected[:3])
        np.testing.assert_array_equal(parts[2][3:], expected[3:, :7])


@pytest.mark.parametrize(
    ("precision", "state"),
    [("int8", "host"), ("fp32", "host"), ("fp32", "device"), ("fp16", "host"), ("fp16", "device")],
)
def test_a_row_alone_leaps_to_the_same_bits(
    sessions: OrtSessions,
    float_sessions: dict[Precision, OrtSessions],
    precision: Precision,
    state: Literal["host", "device"],
) -> None:
    """An odd number of steps ends with a single one; before and after, the row has company."""
    opened = sessions if precision == "int8" else float_sessions[precision]
    runner, sources = OrtRunner(opened, 4, state), sources_of(3, seed=5)
    ids, log_probs = decode(OrtRunner(opened, 4, state), sources, 11)  # [rows, steps]
    runner.add(sources, range(3))
    tokens = runner.step(np.full(3, BOS), 1).ids[:, 0].copy()
    runner.keep(np.array([2]))
    told: list[int] = []
    stretch = runner.multi_step(tokens[2:], 7, NEVER, lambda steps: told.append(steps) is None)
    assert told == [2, 2, 2, 1]
    runner.add(sources[:1], [1])
    last = runner.multi_step(np.array([stretch.ids[-1, 0], BOS]), 3, NEVER, lambda steps: True)
    np.testing.assert_array_equal(stretch.ids[:, 0], ids[2, 1:8])
    np.testing.assert_array_equal(last.ids.T, [ids[2, 8:11], ids[0, :3]])
    # Bit for bit, or as near as a precision comes that promises less.
    tolerance = {"int8": 0.0, "fp32": 1e-5, "fp16": 0.02}[precision]
    np.testing.assert_allclose(stretch.log_probs[:, 0], log_probs[2, 1:8], rtol=0, atol=tolerance)
    np.testing.assert_allclose(last.log_probs.T, [log_probs[2, 8:11], log_probs[0, :3]], rtol=0, atol=tolerance)


@pytest.mark.parametrize("steps_before_the_end", [2, 3])
def test_what_comes_after_an_end_does_not_count(sessions: OrtSessions, steps_before_the_end: int) -> None:
    """A leap may go beyond an end: the row that takes the place must not see it."""
    runner, sources = OrtRunner(sessions, 2), sources_of(2, seed=6)
    ids, log_probs = decode(runner, sources, 8)  # [rows, steps]
    end_id = int(ids[0, steps_before_the_end])
    steps = ids[0].tolist().index(end_id) + 1
    runner.keep(EMPTY)
    runner.add(sources[:1], [0])
    stretch = runner.multi_step(np.array([BOS]), 8, end_id, lambda steps: True)
    np.testing.assert_array_equal(stretch.ids[:, 0], ids[0, :steps])
    np.testing.assert_array_equal(stretch.log_probs[:, 0], log_probs[0, :steps])
    going_on = runner.multi_step(stretch.ids[-1], 8 - steps, NEVER, lambda steps: True)
    np.testing.assert_array_equal(going_on.log_probs[:, 0], log_probs[0, steps:])


def test_a_bundle_without_leaps_takes_steps(tiny_bundle: Bundle) -> None:
    """Format 1 began without them."""
    files = {name: record for name, record in tiny_bundle.files.items() if name != LEAP}
    runner, sources = OrtRunner(OrtSessions(replace(tiny_bundle, files=files)), 2), sources_of(1, seed=7)
    runner.add(sources, [0])
    told: list[int] = []
    runner.multi_step(np.array([BOS]), 4, NEVER, lambda steps: told.append(steps) is None)
    assert told == [1] * 4


def test_rows_move_before_their_first_step(sessions: OrtSessions) -> None:
    """A job may be cancelled between its encoding and its first token."""
    runner, sources = OrtRunner(sessions, 4), sources_of(3, seed=9)
    expected, _ = decode(OrtRunner(sessions, 1), [sources[2]], 4)
    runner.add(sources, range(len(sources)))
    runner.keep(np.array([2]))
    tokens = np.array([BOS])
    for step in range(4):
        tokens = runner.step(tokens, 1).ids[:, 0].copy()
        assert tokens[0] == expected[0, step]


def test_beams_that_share_their_first_tokens_keep_them(sessions: OrtSessions) -> None:
    """Only slots that differ are copied; what is not copied must be the same already."""
    rng, source = np.random.default_rng(0), sources_of(1, seed=4)[0]
    runner = OrtRunner(sessions, 6)
    runner.add([source], [0])
    paths = [[BOS]]
    for _ in range(20):
        runner.step(np.array([path[-1] for path in paths]), 7)
        parents = rng.integers(0, len(paths), int(rng.integers(1, 7)))
        runner.keep(parents)
        paths = [[*paths[parent], int(rng.integers(40, 48))] for parent in parents]
    found = runner.step(np.array([path[-1] for path in paths]), 7)
    for row, path in enumerate(paths):
        alone = OrtRunner(sessions, 1)
        alone.add([source], [0])
        for token in path:
            wanted = alone.step(np.array([token]), 2)
        np.testing.assert_array_equal(found.ids[row, :2], wanted.ids[0])
        np.testing.assert_array_equal(found.log_probs[row, :2], wanted.log_probs[0])


def test_a_hole_is_filled_and_new_rows_join(sessions: OrtSessions) -> None:
    """Continuous batching: rows leave and join at any step, each at its own position."""
    runner, (first, second, third) = OrtRunner(sessions, 4), sources_of(3, seed=5)
    alone = [decode(OrtRunner(sessions, 1), [source], 8) for source in (first, second, third)]
    runner.add([first, second], [0, 1])
    tokens = np.full(2, BOS)
    for _ in range(3):
        tokens = runner.step(tokens, 1).ids[:, 0].copy()
    runner.keep(np.array([1]))  # the first leaves, the second takes its place
    runner.add([third], [1])
    tokens = np.array([tokens[1], BOS])
    for step in range(5):
        candidates = runner.step(tokens, 1)
        tokens = candidates.ids[:, 0].copy()
        for row, (who, at) in enumerate(((1, step + 3), (2, step))):
            assert tokens[row] == alone[who][0][0, at]
            assert candidates.log_probs[row, 0] == alone[who][1][0, at]


def test_new_rows_take_any_places_that_are_free(sessions: OrtSessions) -> None:
    """Who joins sits where others left: not side by side, and not in the order of their lengths."""
    runner, sources = OrtRunner(sessions, 6), sources_of(9, seed=11)
    alone = [decode(OrtRunner(sessions, 1), [source], 8) for source in sources]
    runner.add(sources[:5], range(5))
    tokens = np.full(5, BOS)
    for _ in range(3):
        tokens = runner.step(tokens, 1).ids[:, 0].copy()
    runner.add(sources[5:9], [3, 0, 5, 1])
    who, at = [6, 8, 2, 5, 4, 7], [0, 0, 3, 0, 3, 0]
    tokens = np.array([BOS, BOS, tokens[2], BOS, tokens[4], BOS])
    for step in range(5):
        candidates = runner.step(tokens, 1)
        tokens = candidates.ids[:, 0].copy()
        for row in range(6):
            assert tokens[row] == alone[who[row]][0][0, at[row] + step]
            assert candidates.log_probs[row, 0] == alone[who[row]][1][0, at[row] + step]


def test_rows_that_pause_go_on_as_if_nothing_had_been(sessions: OrtSessions) -> None:
    """Only the first rows step; the others keep their place in their sentence."""
    runner, sources = OrtRunner(sessions, 4), sources_of(4, seed=13)
    alone = [decode(OrtRunner(sessions, 1), [source], 8)[0][0] for source in sources]
    runner.add(sources, range(4))
    tokens, at = np.full(4, BOS), np.zeros(4, int)
    for stepping in (4, 2, 1, 4, 3, 2, 4):
        tokens[:stepping] = runner.step(tokens[:stepping].copy(), 1).ids[:, 0]
        assert tokens[:stepping].tolist() == [alone[row][at[row]] for row in range(stepping)]
        at[:stepping] += 1


def test_wanted_tokens_are_scored_whatever_is_best(sessions: OrtSessions) -> None:
    """A forced prefix has scores too, though its tokens may be far from the best."""
    runner = OrtRunner(sessions, 479)  # room for as many candidates as the vocabulary has
    runner.add(sources_of(3), range(3))
    tokens = np.full(3, BOS)
    plain = runner.step(tokens, 480)
    order = [dict(zip(i.tolist(), p.tolist(), strict=True)) for i, p in zip(plain.ids, plain.log_probs, strict=True)]
    assert plain.wanted_log_probs is None
    runner.keep(EMPTY)
    runner.add(sources_of(3), range(3))
    wanted = np.array([7, 300, 479])
    found = runner.step(tokens, 1, wanted).wanted_log_probs
    assert found is not None
    assert found.tolist() == [of_row[token] for of_row, token in zip(order, wanted.tolist(), strict=True)]


def test_runners_that_share_sessions_do_not_meet(sessions: OrtSessions) -> None:
    """Two decode loops load the weights once; their rows are their own."""
    left, right = OrtRunner(sessions, 4), OrtRunner(sessions, 4)
    sources = sources_of(2, seed=8)
    expected = [decode(OrtRunner(sessions, 1), [source], 5)[0][0] for source in sources]
    tokens = [np.array([BOS]), np.array([BOS])]
    for runner, source in zip((left, right), sources, strict=True):
        runner.add([source], [0])
    for step in range(5):
        for i, runner in enumerate((left, right)):
            tokens[i] = runner.step(tokens[i], 1).ids[:, 0].copy()
            assert tokens[i][0] == expected[i][step]


@pytest.mark.parametrize("length", [0, 97])
def test_a_source_that_does_not_fit_is_refused(sessions: OrtSessions, length: int) -> None:
    """Cut silently it would be a wrong translation; the buffers hold exactly what the bundle promises."""
    runner = OrtRunner(sessions, 2)
    with pytest.raises(ValueError, match=f"a source has {length} tokens; this bundle takes 1 to 96"):
        runner.add([[5] * length], [0])
    assert runner.num_rows == 0


def test_the_longest_source_and_the_last_token_fit(sessions: OrtSessions) -> None:
    """Limits are inclusive: the last slot of every buffer is usable."""
    runner = OrtRunner(sessions, 2)
    ids, _ = decode(runner, [[50 + i % 400 for i in range(96)]], 80)
    assert ids.shape == (1, 80)
    with pytest.raises(AssertionError, match="beyond the bundle's limit"):
        runner.step(np.array([5]), 1)


def test_more_rows_than_there_is_room_for_are_our_own_mistake(sessions: OrtSessions) -> None:
    """The scheduler reserves rows; if it miscounts, that must be loud."""
    with pytest.raises(AssertionError, match="room for 2"):
        OrtRunner(sessions, 2).add(sources_of(3), range(3))


def test_memory_is_known_before_the_first_request(sessions: OrtSessions) -> None:
    """Operators size a container by this number; it is the same after any work."""
    runner = OrtRunner(sessions, 8)
    before = runner.num_bytes
    caches = 8 * 2 * 16 * 4 * (4 * 96 + 4 * 80)  # rows, heads, head_dim, float; two layers' keys and values
    assert caches < before < 1.2 * caches
    decode(runner, sources_of(8, longest=90), 20, k=8)
    assert runner.num_bytes == before


def test_memory_stays_flat_over_many_shapes(sessions: OrtSessions) -> None:
    """A runtime that remembers every shape it met would grow for days and then be killed."""
    runner, process = OrtRunner(sessions, 16), psutil.Process()

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(60):
            runner.keep(EMPTY)
            sources = sources_of(int(rng.integers(1, 17)), int(rng.integers(1 << 30)), longest=90)
            runner.add(sources, range(len(sources)))
            k = int(rng.choice([1, 2, 6, 8]))
            for _ in range(3):
                runner.step(np.full(runner.num_rows, 50), k)
                runner.keep(np.arange(rng.integers(1, runner.num_rows + 1)))

    for seed in range(4):
        work(seed)
    before = process.memory_info().rss
    for seed in range(4, 12):
        work(seed)
    assert process.memory_info().rss < 1.02 * before


def test_a_graph_with_an_unknown_operator_is_refused_in_one_sentence(tiny_bundle: Bundle, tmp_path: Path) -> None:
    """A bundle of a newer exporter, or for another runtime: refused when it is loaded, not when it is asked."""
    bundle = copied(tiny_bundle, tmp_path)
    model = onnx.load(str(bundle.file("decoder.onnx")), load_external_data=False)
    model.graph.node.append(helper.make_node("TranslateWell", ["tokens"], ["well"], domain="com.microsoft"))
    bundle.file("decoder.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(BundleError, match=r"cannot load decoder\.onnx of bundle .*TranslateWell") as caught:
        OrtSessions(bundle)
    assert "\n" not in str(caught.value)


def test_a_broken_graph_is_refused(tiny_bundle: Bundle, tmp_path: Path) -> None:
    """Hashes protect against accidents on the way; this one was wrong from the start."""
    bundle = copied(tiny_bundle, tmp_path)
    bundle.file("encoder.onnx").write_bytes(b"not a graph")
    with pytest.raises(BundleError, match=r"cannot load encoder\.onnx of bundle"):
        OrtSessions(bundle)


def copied(bundle: Bundle, folder: Path) -> Bundle:
    shutil.copytree(bundle.path, folder / "bundle")
    return replace(bundle, path=folder / "bundle")


CUDA, CPU = ["CUDAExecutionProvider", "CPUExecutionProvider"], ["CPUExecutionProvider"]


@pytest.mark.parametrize(
    ("wanted", "precision", "available", "device", "reason"),
    [
        ("cpu", "fp16", CUDA, "cpu", None),
        ("auto", "fp16", CUDA, "cuda", None),
        ("auto", "fp16", CPU, "cpu", None),
        ("auto", "int8", CUDA, "cpu", None),
        ("cuda", "fp16", CUDA, "cuda", None),
        ("cuda", "fp16", CPU, "cpu", "install the extra `gpu`"),
        ("cuda", "int8", CUDA, "cpu", "int8 bundle runs on the CPU only"),
    ],
)
def test_the_device_is_what_was_asked_for_or_the_reason_is_told(
    wanted: str, precision: str, available: list[str], device: str, reason: str | None
) -> None:
    """A server that silently runs on the CPU is a mystery; one that says why is a line to fix."""
    found, warning = choose_device(wanted, precision, available)  # type: ignore[arg-type]
    assert found == device
    assert (warning is None) == (reason is None)
    assert reason is None or reason in str(warning)


def test_a_missing_gpu_is_a_warning_and_the_cpu(
    tiny_float_bundles: dict[Precision, Bundle], caplog: pytest.LogCaptureFixture
) -> None:
    """The service goes on, and says so."""
    with caplog.at_level(logging.WARNING):
        sessions = OrtSessions(tiny_float_bundles["fp32"], provider="cuda")
    assert sessions.device == "cpu"
    assert "runs on the CPU" in caplog.text
