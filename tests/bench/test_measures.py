"""The benchmarks measure what they say: counted operations are the graph's, timed parts add up, all are named."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from bench import anatomy
from bench.growth import microseconds_per_token
from bench.harness import Profile
from bench.latency import Latency
from bench.limit import (
    SOURCE_TOKENS,
    Peaks,
    bandwidth,
    decoder_cost,
    encoder_cost,
    operator_profile,
    operator_table,
    product_rate,
    sentence_operations,
)
from bench.models import Subject, output_columns
from bench.offline import File, Offline
from bench.overhead import Meter, TimedSession, Turns, row_of
from bench.peers.peer import encode
from dragoman.model.saved import SavedModel
from dragoman.service.bundles.manifest import DECODER, ENCODER, Bundle

TEXTS = ["Bom dia!", "Até amanhã.", "O gato dorme.", "Obrigada."]


@pytest.fixture(scope="module")
def subject(tiny_saved: SavedModel, tiny_bundle: Bundle) -> Subject:
    return Subject(tiny_saved, tiny_bundle)


def weights_multiplied(bundle: Bundle, name: str) -> int:
    """The numbers of all matrices that one row (one token) is multiplied with, read from the graph itself."""
    graph = onnx.shape_inference.infer_shapes(onnx.load(bundle.file(name), load_external_data=False)).graph
    shapes = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    made = {output: node for node in graph.node for output in node.output}

    def size(tensor: str) -> int:
        return int(np.prod(shapes[tensor])) if tensor in shapes else size(made[tensor].input[0])  # transposed

    return sum(size(node.input[1]) for node in graph.node if node.op_type == "MatMulIntegerToFloat")


def test_counted_operations_are_those_of_the_graphs(tiny_bundle: Bundle) -> None:
    """A share of the peak is only as true as the count."""
    shape, outputs = tiny_bundle.architecture, output_columns(tiny_bundle)
    assert decoder_cost(shape, outputs, rows=3).operations == 2 * 3 * weights_multiplied(tiny_bundle, DECODER)
    tokens = 3 * SOURCE_TOKENS
    assert encoder_cost(shape, rows=3).operations == 2 * tokens * weights_multiplied(tiny_bundle, ENCODER)
    both = [2 * weights_multiplied(tiny_bundle, name) for name in (ENCODER, DECODER)]
    assert sentence_operations(shape, outputs, 7, 5) == 7 * both[0] + 5 * both[1]


def test_the_roof_is_the_lower_of_two() -> None:
    """Few operations per byte: the memory decides; many: the multipliers."""
    peaks = Peaks(int8=1000.0, fp32=100.0, bandwidths={1 << 20: 10.0})
    assert peaks.roof(operations=50.0, num_bytes=10.0) == 50.0
    assert peaks.roof(operations=5000.0, num_bytes=10.0) == 1000.0


@pytest.mark.parametrize("kind", ["int8", "fp32"])
def test_peaks_are_measured(kind: str) -> None:
    """Both products run in the runtime as it is installed."""
    assert product_rate(kind, 16, 32, 48, seconds=0.01) > 0
    assert bandwidth(1 << 16, seconds=0.01) > 0


def test_operators_are_added_up_by_kind() -> None:
    """Two calls a step, half the time: that is what the table says."""

    def event(name: str, micros: int) -> dict[str, Any]:
        return {"cat": "Node", "name": f"{name}_kernel_time", "dur": micros, "args": {"op_name": name}}

    runs = [{"cat": "Session", "name": "model_run", "dur": 99}] * 2
    fences = [{"cat": "Node", "name": "MatMul_fence_before", "dur": 50, "args": {"op_name": "MatMul"}}]
    table = operator_table([*runs, *fences, event("MatMul", 20), event("MatMul", 10), event("Add", 10)], rows=4)
    assert table.rows == [["MatMul", 1.0, 15.0, "75.0%"], ["Add", 0.5, 5.0, "25.0%"]]


def test_a_profile_names_the_operators_of_a_step(subject: Subject) -> None:
    """The runtime's own account, through the service's own options."""
    (source,) = encode(subject.tokenizer, ["Bom dia!"])
    names = [row[0] for row in operator_profile(subject, source, 4).rows]
    assert "MatMulIntegerToFloat" in names


def test_a_timed_session_counts_its_runs_only() -> None:
    """What is not a run passes through and costs nothing."""

    class Session:
        provider = "cpu"

        def get_outputs(self) -> list[object]:
            return []

        def run(self, names: object, feeds: object) -> str:
            return f"{names} {feeds}"

    clock = iter([10, 17, 20, 21])
    session = TimedSession(Session(), lambda: next(clock))
    assert session.run(None, {}) == "None {}"
    assert session.run(None, {}) == "None {}"
    assert session.provider == "cpu"
    assert session.nanoseconds == 8


@pytest.mark.parametrize(("rows", "beam_size"), [(4, 1), (8, 4)])
def test_steps_are_full_and_their_parts_add_up(subject: Subject, rows: int, beam_size: int) -> None:
    """Python is what a turn takes beyond the runtime: never less than nothing."""
    (source,) = encode(subject.tokenizer, ["O gato dorme."])
    turns = Meter(subject, rows).steady(source, rows, beam_size, files=2)
    assert turns.total
    assert all(0 < runtime < whole for whole, runtime in zip(turns.total, turns.runtime, strict=True))
    assert row_of(Turns([2000, 4000], [1000, 3000]), 2, 1) == ["greedy", 2, 3.0, 2.0, 1.0, 0.5, "33.3%"]


def test_offline_tells_both_sides_and_their_ratio(subject: Subject, tmp_path: Path) -> None:
    """One table row each, one ratio, and the share of sentences that came out as in floating point."""
    offline = Offline(Profile(runs=1, progress=False), subject, tmp_path, lambda step: None, max_tokens=12)
    offline.one_core(File("few", TEXTS), 1, bar=1.3)
    (ratio,) = offline.ratios
    assert [row[2] for row in offline.rows] == ["ours", ratio.against]
    assert ratio.against.startswith("CTranslate2 int8, batches of ")
    assert ratio.bar == 1.3


def test_a_file_one_at_a_time_counts_every_sentence(subject: Subject, tmp_path: Path) -> None:
    """A rate over sentences, in turn with the peer: more is better."""
    latency = Latency(Profile(runs=1, progress=False), subject, tmp_path, "tiny", max_tokens=6)
    latency.measure_file(TEXTS[:3], runs=2)
    (ratio,) = latency.ratios
    assert (ratio.unit, ratio.bar, ratio.higher_is_better) == ("sentences per CPU second", 1.5, True)
    assert ratio.ours > 0


def test_latency_pairs_sentence_by_sentence(subject: Subject, tmp_path: Path) -> None:
    """A median and a p95 each, and a ratio of latencies, where less is better."""
    latency = Latency(Profile(runs=1, progress=False), subject, tmp_path, "tiny", max_tokens=6)
    latency.measure(TEXTS[:2], 5, [])
    (ratio,) = latency.ratios
    assert not ratio.higher_is_better
    assert [row[:3] for row in latency.rows] == [["tiny", 5, "ours"], ["tiny", 5, ratio.against]]


def test_growth_costs_tokens_not_sentences(subject: Subject, tmp_path: Path) -> None:
    """Both sides of one size, per token that each of them made."""
    sources = encode(subject.tokenizer, TEXTS)
    found = microseconds_per_token(subject, tmp_path, sources, batch=2, max_tokens=6, runs=1)
    assert set(found) == {"ours", "CTranslate2 int8"}
    assert all(value > 0 for value in found.values())


def test_the_parts_of_a_sentence_add_up_to_the_whole(subject: Subject) -> None:
    """A profile that hides a part explains nothing."""
    cells = dict(zip(anatomy.ALONE_COLUMNS, anatomy.alone(subject, TEXTS, tokens=3), strict=True))
    shares = [float(str(cells[name]).rstrip("%")) for name in ("encoder", "decoder", "Python", "tokenizer")]
    assert sum(shares) == pytest.approx(100, abs=2.5)  # rounded one by one
    assert min(shares) >= 0
    assert float(str(cells["steps"])) >= 1


def test_sentences_that_do_not_fit_are_left_out_of_files(subject: Subject) -> None:
    """The longest line of a file would otherwise end an hour's measurement."""
    too_long = "muito " * subject.bundle.limits.max_source_tokens
    assert subject.fitting([*TEXTS, too_long, TEXTS[0]]) == [*TEXTS, TEXTS[0]]
