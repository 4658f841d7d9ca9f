"""How near to the machine's limit: its measured peaks, and what encoder and decoder reach of them at growing batches.

    python -m bench.limit [quick | full]

Peaks of one core: int8 and fp32 products of large matrices through the same runtime, and reading memory that lies in
the last cache or beyond. Then encoder and decoder of the bundle at 1, 8, 32 and 64 rows: multiply-adds of their
weight matrices (counted from the manifest; attention itself is not counted) by time, as a share of the integer peak and
of what the bandwidth would allow (roofline). Where the bar is missed, the report carries a profile by operator.
"""

import json
import math
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper

from bench.harness import Cell, Figure, Profile, Ratio, Report, Table, collected, command, pinned, share, steps
from bench.models import Subject, output_columns, shipped
from bench.overhead import Meter
from bench.peers.ours import Ours
from bench.peers.peer import encode
from bench.texts import of_length, sentences
from dragoman.service.bundles.manifest import DECODER, Architecture

ROWS = (1, 8, 32, 64)
BAR, BAR_ROWS = 0.6, 64
SOURCE_TOKENS, TARGET_TOKENS = 12, 12  # usual lengths
LARGE = 1024  # side of the square products
SIZES = (4 << 20, 256 << 20)  # bytes: about the decoder's weights, and more than any cache
Array = npt.NDArray[Any]
NOTES = [
    "Operations are those of the weight matrices, two for a multiply-add; attention and all else count as time only.",
    "The roof is the integer peak, or what reading the weights (and caches) once a run at the measured rate allows.",
    f"Peaks are the best seen, and so are the parts; CPU time of one thread; sources of {SOURCE_TOKENS} tokens.",
]


def best_rate(work: Callable[[], object], amount: float, seconds: float) -> float:
    """The highest rate seen while repeating for so long: a peak is what the machine can do, not what it did.

    CPU time of this thread, which does all the work: others on the machine take from the wall clock only.
    """
    work()
    best, until = 0.0, time.perf_counter() + seconds
    while time.perf_counter() < until:
        began = time.thread_time()
        work()
        best = max(best, amount / (time.thread_time() - began))
    return best


def product_rate(kind: str, rows: int, inner: int, columns: int, seconds: float) -> float:
    """Operations (two for a multiply-add) per second of one product, `int8` or `fp32`, through the runtime."""
    session, x = _product(kind, rows, inner, columns)
    repeats = max(1, 20_000_000 // (rows * inner * columns))  # a clock's tick is no part of the rate

    def work() -> None:
        for _ in range(repeats):
            session.run(None, {"x": x})

    return best_rate(work, 2 * rows * inner * columns * repeats, seconds)


def _product(kind: str, rows: int, inner: int, columns: int) -> tuple[ort.InferenceSession, Array]:
    random, tensor = np.random.default_rng(1), onnx.numpy_helper.from_array
    if kind == "fp32":
        x, weight = (random.standard_normal(shape, np.float32) for shape in ((rows, inner), (inner, columns)))
        node, constants = helper.make_node("MatMul", ["x", "weight"], ["y"]), []
    else:
        x = random.integers(0, 256, (rows, inner)).astype(np.uint8)
        weight = random.integers(-63, 64, (inner, columns)).astype(np.int8)
        constants = [tensor(np.array(0.01, np.float32), name) for name in ("a", "b")]
        constants += [tensor(np.array(128, np.uint8), "zero")]
        inputs = ["x", "weight", "a", "b", "zero"]
        node = helper.make_node("MatMulIntegerToFloat", inputs, ["y"], domain="com.microsoft")
    given = helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
    made = helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, columns])
    graph = helper.make_graph([node], "product", [given], [made], [tensor(weight, "weight"), *constants])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"]), x


def bandwidth(num_bytes: int, seconds: float) -> float:
    """Bytes per second that one core reads from an array of this size: a dot product with itself, nothing written."""
    array = np.ones(num_bytes // 4, np.float32)
    repeats = max(1, (1 << 26) // num_bytes)
    return best_rate(lambda: [array.dot(array) for _ in range(repeats)], repeats * array.nbytes, seconds)


@dataclass(frozen=True)
class Peaks:
    int8: float  # operations per second
    fp32: float
    bandwidths: dict[int, float]  # bytes per second, by the size of what is read

    def roof(self, operations: float, num_bytes: float) -> float:
        """What the machine allows: the integer peak, or as fast as the weights can be read."""
        size = min(self.bandwidths, key=lambda size: abs(math.log(size / num_bytes)))
        return min(self.int8, operations / num_bytes * self.bandwidths[size])


def peak_rate(kind: str, seconds: float) -> float:
    return product_rate(kind, LARGE, LARGE, LARGE, seconds)


def measure_peaks(seconds: float) -> Peaks:
    sizes = {size: bandwidth(size, seconds) for size in SIZES}
    return Peaks(peak_rate("int8", seconds), peak_rate("fp32", seconds), sizes)


@dataclass(frozen=True)
class Cost:
    """Of one run over so many rows."""

    operations: float
    num_bytes: float  # weights once, caches of every row


def decoder_cost(shape: Architecture, outputs: int, rows: int) -> Cost:
    """q k v, out, cross q, cross out, feed-forward; then the vocabulary. A weight is a byte, a cached number four."""
    d, ff = shape.d_model, shape.d_ff
    weights = shape.decoder_layers * (6 * d * d + 2 * d * ff) + d * outputs
    caches = 4 * 2 * shape.decoder_layers * (SOURCE_TOKENS + TARGET_TOKENS) * d
    return Cost(2 * weights * rows, weights + caches * rows)


def encoder_cost(shape: Architecture, rows: int) -> Cost:
    """The layers over every source token, and the cross keys and values of every decoder layer."""
    d, ff = shape.d_model, shape.d_ff
    weights = shape.encoder_layers * (4 * d * d + 2 * d * ff) + shape.decoder_layers * 2 * d * d
    return Cost(2 * weights * rows * SOURCE_TOKENS, weights + 4 * d * rows * SOURCE_TOKENS)


def sentence_operations(shape: Architecture, outputs: int, source_tokens: float, target_tokens: float) -> float:
    """Of all products with weights that one sentence takes, greedy."""
    of_source = encoder_cost(shape, 1).operations / SOURCE_TOKENS
    return source_tokens * of_source + target_tokens * decoder_cost(shape, outputs, 1).operations


def decoder_seconds(subject: Subject, source: list[int], rows: int, files: int) -> float:
    """Of one step in the runtime alone, the best seen of each: every file has the same turns, with caches as long."""
    if rows == 1:  # whose first turn is that of the encoder, and has many steps: there is to be another
        source = [*source[:-1], *source]
    turns = np.array(Meter(subject, rows).steady(source, rows, 1, files).runtime).reshape(files, -1)  # [files, turns]
    return float(turns.min(0).mean()) / 1e9


def encoder_seconds(subject: Subject, rows: int, repeats: int) -> float:
    """Of one run over as many sentences of one length."""
    encoder = Ours(subject.bundle, 1).encoder
    source = np.full((rows, SOURCE_TOKENS), 1000, np.int64)
    seconds = []
    for _ in range(repeats + 1):
        began = time.thread_time()
        encoder.run(None, {"source": source})
        seconds.append(time.thread_time() - began)
    return min(seconds)


def operator_profile(subject: Subject, source: list[int], rows: int) -> Table:
    """Where a step's time goes by the runtime's own account, which slows small operators by its bookkeeping."""
    with tempfile.TemporaryDirectory() as folder:

        def profiled(session: ort.InferenceSession) -> ort.InferenceSession:
            if all(value.name != "k" for value in session.get_inputs()):
                return session  # the encoder, or the decoder of a row alone
            options = session.get_session_options()
            options.enable_profiling, options.profile_file_prefix = True, f"{folder}/decoder"
            return ort.InferenceSession(str(subject.bundle.file(DECODER)), options, providers=session.get_providers())

        ours = Ours(subject.bundle, rows, wrap=profiled)
        for _ in range(4):
            ours.translate_ids([source] * rows, 1)
        events = json.loads(Path(ours.decoder.end_profiling()).read_text("utf-8"))
    return operator_table(events, rows)


def operator_table(events: list[dict[str, Any]], rows: int) -> Table:
    micros: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            micros[event["args"]["op_name"]] += event["dur"]
            calls[event["args"]["op_name"]] += 1
    num_steps = max(1, sum(event.get("name") == "model_run" for event in events))
    whole = sum(micros.values()) or 1
    table: list[list[Cell]] = [
        [name, round(calls[name] / num_steps, 1), round(spent / num_steps, 1), f"{spent / whole:.1%}"]
        for name, spent in micros.most_common()
    ]
    return Table(f"A step of at most {rows} rows by operator", ["operator", "calls", "µs a step", "share"], table)


def shapes_table(shape: Architecture, outputs: int, rows: int, peak: float, seconds: float) -> Table:
    """The runtime's product alone at the decoder's own shapes: what a step could reach if it did nothing else."""
    d, ff = shape.d_model, shape.d_ff
    kinds = {"q k v": (d, 3 * d), "out, q": (d, d), "up": (d, ff), "down": (ff, d), "vocabulary": (d, outputs)}
    table: list[list[Cell]] = []
    for name, (inner, columns) in kinds.items():
        rate = product_rate("int8", rows, inner, columns, seconds)
        table.append([name, f"{rows} x {inner} x {columns}", round(rate / 1e9, 1), f"{rate / peak:.0%}"])
    return Table("The decoder's products alone", ["product", "shape", "GOPS", "of the peak"], table)


class Limit:
    """One run of the benchmark."""

    def __init__(self, profile: Profile, subject: Subject, source: list[int], peaks: Peaks) -> None:
        self.profile, self.subject, self.source, self.peaks = profile, subject, source, peaks
        self.outputs = output_columns(subject.bundle)
        self.rows: list[list[Cell]] = []
        self.ratios: list[Ratio] = []
        self.points: dict[str, list[list[float]]] = {"encoder": [], "decoder": []}

    def measure(self, side: str, rows: int) -> None:
        shape = self.subject.bundle.architecture
        if side == "decoder":
            cost = decoder_cost(shape, self.outputs, rows)
            seconds = decoder_seconds(self.subject, self.source, rows, self.profile.choose(4, 16))
        else:
            cost = encoder_cost(shape, rows)
            seconds = encoder_seconds(self.subject, rows, self.profile.choose(10, 60))
        rate, roof = cost.operations / seconds, self.peaks.roof(cost.operations, cost.num_bytes)
        numbers: list[Cell] = [round(1e6 * seconds, 1), round(rate / 1e9, 1)]
        self.rows.append([side, rows, *numbers, f"{rate / self.peaks.int8:.0%}", f"{rate / roof:.0%}"])
        bar = BAR if (side, rows) == ("decoder", BAR_ROWS) else None
        what = f"{side}, {rows} rows"
        self.ratios.append(
            share(what, "the int8 peak", rate / 1e9, self.peaks.int8 / 1e9, "GOPS", bar, higher_is_better=True)
        )
        self.points[side].append([cost.operations / cost.num_bytes, rate / 1e9])

    def figure(self) -> Figure:
        """Rate against intensity; the roof is a series like the others."""
        intensities = [2.0**power for power in range(0, 12)]
        reading = self.peaks.bandwidths[SIZES[0]]
        roof = [[x, min(self.peaks.int8, x * reading) / 1e9] for x in intensities]
        lines = {"int8 peak": self.peaks.int8 / 1e9, "fp32 peak": self.peaks.fp32 / 1e9}
        series = self.points | {"roof": roof}
        label = "operations per byte of weights and caches"
        return Figure("roofline", "How near to the limit", label, "GOPS", series, log_x=True, log_y=True, lines=lines)

    def peaks_table(self) -> Table:
        rows: list[list[Cell]] = [
            [f"int8 product, {LARGE} x {LARGE} x {LARGE}, GOPS", round(self.peaks.int8 / 1e9, 1)],
            [f"fp32 product, {LARGE} x {LARGE} x {LARGE}, GFLOPS", round(self.peaks.fp32 / 1e9, 1)],
        ]
        rows += [[f"reading {size >> 20} MB, GB/s", round(r / 1e9, 1)] for size, r in self.peaks.bandwidths.items()]
        return Table("The machine, one core", ["what", "value"], rows)


def run(profile: Profile) -> Report:
    subject = shipped(profile.model, profile.bundle)
    texts = sentences(profile.sources, 4000, subject.bundle.pairs[0].source)
    (source,) = encode(subject.tokenizer, of_length(subject.tokenizer, texts, SOURCE_TOKENS - 1, 1))
    cases = [(side, rows) for side in ("encoder", "decoder") for rows in ROWS]
    seconds = profile.choose(0.3, 2.0)
    with steps(profile, "limit", len(cases) + 2) as begin, pinned(0), collected():
        begin("peaks")
        limit = Limit(profile, subject, source, measure_peaks(seconds))
        for side, rows in cases:
            begin(f"{side}, {rows} rows")
            limit.measure(side, rows)
        begin("operators")
        columns = ["part", "rows", "µs", "GOPS", "of the int8 peak", "of the roof"]
        tables = [limit.peaks_table(), Table("Reached", columns, limit.rows)]
        if any(ratio.met is False for ratio in limit.ratios):
            shape, peak = subject.bundle.architecture, limit.peaks.int8
            tables += [shapes_table(shape, limit.outputs, BAR_ROWS, peak, seconds / 2)]
            tables += [operator_profile(subject, source, BAR_ROWS)]
    return Report("limit", "The machine's limit", tables, limit.ratios, [limit.figure()], NOTES)


if __name__ == "__main__":
    command(run, __doc__)
