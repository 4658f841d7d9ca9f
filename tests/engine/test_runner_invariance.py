"""The first promise: a row's tokens and scores are the same bits alone and in any crowd.

First every operator that could break it, by itself and in the shapes of the shipped model; then the whole int8 bundle
under crowds that hypothesis makes up.
"""

from collections.abc import Callable

import numpy as np
import onnxruntime as ort
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dragoman.export.builder import MICROSOFT, GraphBuilder, WeightFile
from dragoman.service.bundles.manifest import Bundle
from dragoman.service.engine.job import DecodingOptions, DecodingResult, DecodingRules, Job
from dragoman.service.engine.loop import Engine
from dragoman.service.engine.runner import OrtRunner
from dragoman.service.engine.sessions import OrtSessions
from tests.engine.crowds import answer, play
from tests.export.test_graphs import inlined

HEADS, HEAD_DIM, WIDTH, HIDDEN, VOCAB, SLOTS = 4, 64, 256, 1024, 8000, 48
ROWS = 37
Arrays = dict[str, np.ndarray]


class Operator:
    """One small graph whose inputs and output have rows as their first dimension."""

    def __init__(self, build: Callable[[GraphBuilder], str], inputs: Arrays) -> None:
        weights = WeightFile()
        g = GraphBuilder("operator", weights)
        for name, array in inputs.items():
            g.input(name, array.dtype, *(f"{name}{i}" for i in range(array.ndim)))
        g.output(build(g), np.float32, "rows", "length", "width")
        options = ort.SessionOptions()
        options.intra_op_num_threads, options.graph_optimization_level = 1, ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
        self._session = ort.InferenceSession(inlined(g.model(), weights.to_bytes()).SerializeToString(), options)

    def __call__(self, inputs: Arrays) -> np.ndarray:
        return self._session.run(None, inputs)[0]


def assert_rows_are_alone(build: Callable[[GraphBuilder], str], inputs: Arrays) -> None:
    """Every row by itself, and in crowds of other sizes, gives the bits it has in the whole crowd."""
    operator = Operator(build, inputs)
    together = operator(inputs)
    for size in (1, 2, 3, 8, 17):
        for start in range(0, ROWS, size):
            few = {name: np.ascontiguousarray(array[start : start + size]) for name, array in inputs.items()}
            np.testing.assert_array_equal(operator(few), together[start : start + size])


def floats(*shape: int, seed: int = 0, scale: float = 1.0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(np.float32)


def attention(packed: bool) -> Callable[[GraphBuilder], str]:
    def build(g: GraphBuilder) -> str:
        new = ["new", "", ""] if packed else ["new", "last_k", "last_v"]
        inputs = [*new, "k", "v", "lengths", g.constant([SLOTS], np.int32)]
        names = ["attended", "k_out", "v_out"]
        return g.nodes("GroupQueryAttention", inputs, names, MICROSOFT, num_heads=HEADS, kv_num_heads=HEADS)[0]

    return build


@pytest.mark.parametrize("packed", [True, False], ids=["self", "cross"])
def test_ragged_attention_sees_its_own_row_only(packed: bool) -> None:
    """Padding to the longest row would reorder sums; here every row has its own length."""
    lengths = np.random.default_rng(1).integers(0, SLOTS, (ROWS, 1)).astype(np.int32)
    inputs = {
        "new": floats(ROWS, 1, 3 * WIDTH if packed else WIDTH),
        "k": floats(ROWS, HEADS, SLOTS, HEAD_DIM, seed=2),
        "v": floats(ROWS, HEADS, SLOTS, HEAD_DIM, seed=3),
        "lengths": lengths,
    }
    if not packed:
        inputs |= {"last_k": floats(ROWS, 1, WIDTH, seed=4), "last_v": floats(ROWS, 1, WIDTH, seed=5)}
    assert_rows_are_alone(attention(packed), inputs)


def test_attention_equals_its_definition() -> None:
    """Bits that agree with each other could still be wrong together."""
    rows = 5
    lengths = np.array([[0], [3], [9], [1], [20]], np.int32)
    new, k, v = floats(rows, 1, 3 * WIDTH), floats(rows, HEADS, SLOTS, HEAD_DIM), floats(rows, HEADS, SLOTS, HEAD_DIM)
    inputs = {"new": new, "k": k, "v": v, "lengths": lengths}
    found = Operator(attention(packed=True), inputs)(inputs)
    query, key, value = new.reshape(rows, 3, HEADS, HEAD_DIM).swapaxes(0, 1)
    for row, length in enumerate(lengths[:, 0]):
        for head in range(HEADS):
            keys = np.vstack([k[row, head, :length], key[row, head]])
            values = np.vstack([v[row, head, :length], value[row, head]])
            weights = np.exp(keys @ query[row, head] / np.sqrt(HEAD_DIM))
            expected = weights @ values / weights.sum()
            np.testing.assert_allclose(found[row, 0].reshape(HEADS, -1)[head], expected, atol=2e-6)


def test_encoder_attention_sees_its_own_sentence_only() -> None:
    """Sources of one length are encoded together; how many they are must not show."""
    for length in (1, 7, 16, 33):
        inputs = {name: floats(ROWS, length, WIDTH, seed=i) for i, name in enumerate("qkv")}
        assert_rows_are_alone(
            lambda g: g.node("Attention", ["q", "k", "v"], q_num_heads=HEADS, kv_num_heads=HEADS), inputs
        )


@pytest.mark.parametrize(("inner", "outer"), [(WIDTH, 3 * WIDTH), (WIDTH, HIDDEN), (HIDDEN, WIDTH), (WIDTH, VOCAB)])
def test_integer_products_are_exact(inner: int, outer: int) -> None:
    """The reason for static int8: integers have no rounding that a neighbour could change."""
    rng = np.random.default_rng(0)
    weight = rng.integers(-63, 64, (inner, outer)).astype(np.int8)
    scale, bias = floats(outer, scale=0.02), floats(outer, seed=1)

    def build(g: GraphBuilder) -> str:
        rounded = g.node("QuantizeLinear", ["x", g.constant(0.03, np.float32), g.constant(128, np.uint8)])
        inputs = [rounded, g.weight("weight", weight), g.constant(0.03, np.float32), g.weight("scale", scale)]
        return g.node(
            "MatMulIntegerToFloat", [*inputs, g.constant(128, np.uint8), "", g.weight("bias", bias)], MICROSOFT
        )

    assert_rows_are_alone(build, {"x": floats(ROWS, 1, inner)})


def test_norms_see_their_own_row_only() -> None:
    """A norm sums over the row; the order of that sum must not depend on the batch."""
    gain, bias = floats(WIDTH, seed=1), floats(WIDTH, seed=2)
    assert_rows_are_alone(
        lambda g: g.node("LayerNormalization", ["x", g.weight("gain", gain), g.weight("bias", bias)], axis=-1),
        {"x": floats(ROWS, 1, WIDTH, scale=3)},
    )


def test_log_softmax_sees_its_own_row_only() -> None:
    """Scores are promised to the bit, too."""
    assert_rows_are_alone(lambda g: g.node("LogSoftmax", ["x"], axis=-1), {"x": floats(ROWS, 1, VOCAB, scale=5)})


@pytest.fixture(scope="module")
def sessions(tiny_bundle: Bundle) -> OrtSessions:
    return OrtSessions(tiny_bundle)


sources = st.lists(st.integers(40, 479), min_size=0, max_size=40).map(lambda ids: (*ids, 3))
guests = st.tuples(sources, st.integers(1, 4), st.integers(1, 24), st.integers(0, 12))  # beam, limit, arrival


def translate(
    sessions: OrtSessions, crowd: list[tuple[tuple[int, ...], int, int, int]], rows: int
) -> list[DecodingResult]:
    """All guests in one engine, each submitted at its own turn."""
    engine = Engine([OrtRunner(sessions, rows)], DecodingRules(max_new_tokens=80))
    jobs = [
        Job(ids, DecodingOptions(size, size, max_new_tokens=limit, log_probs=True)) for ids, size, limit, _ in crowd
    ]
    return play(engine, [(job, arrival) for job, (*_, arrival) in zip(jobs, crowd, strict=True)])


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(crowd=st.lists(guests, min_size=2, max_size=14), rows=st.integers(4, 40))
def test_a_job_translates_alike_alone_and_in_a_crowd(
    sessions: OrtSessions, crowd: list[tuple[tuple[int, ...], int, int, int]], rows: int
) -> None:
    """Greedy and beams of every width, arriving when they like, in batches of any size: the same bits."""
    together = translate(sessions, crowd, rows)
    for guest, found in zip(crowd, together, strict=True):
        alone = translate(sessions, [guest], 4)[0]
        assert answer(found) == answer(alone)  # ids, scores and every log-probability
