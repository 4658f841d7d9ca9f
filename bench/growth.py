"""How cost grows: with sentence length, rows, vocabulary, layers, callers; memory; and what a cold start costs.

    python -m bench.growth [quick | full] [--sources FILE]

Start-up is a real server with both embedded bundles, from nothing to its first translated sentence; quick measures that
alone. Times of the other parts are CPU time of one thread, ours beside CTranslate2 in int8 at the same batch size;
vocabularies and layers are those of models with random weights, made here. Steady memory over many shapes is left to
`bench.memory`, latency under load to `bench.served`.
"""

import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from bench.harness import Cell, Figure, Profile, Report, Table, alternate, collected, command, pinned, spread, steps
from bench.models import Subject, random_subject, shipped
from bench.peers.ctranslate2 import CTranslate2
from bench.peers.ours import Ours
from bench.peers.peer import MAX_TOKENS, encode
from bench.processes import Server, ours, serving
from bench.texts import of_length, sentences
from dragoman.model.network_config import PRESETS, TransformerConfig
from dragoman.service.bundles.manifest import Limits

LENGTHS = (5, 10, 20, 40, 80)
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)
VOCABULARIES = (4000, 8000, 16000, 32000, 64000)
DECODER_LAYERS, ENCODER_LAYERS = (1, 2, 4, 6), (2, 6, 12)
CALLERS = (1, 2, 4, 8, 16, 32, 64)
SERVED_ROWS = (16, 32, 64, 128, 256)
REQUESTS = (0, 100, 300, 1000, 3000)
RANDOM_TOKENS = 12  # generated for each sentence by models that never end one
Curves = dict[str, list[list[float]]]


def microseconds_per_token(
    subject: Subject, folder: Path, sources: list[list[int]], batch: int, max_tokens: int, runs: int
) -> dict[str, float]:
    """CPU time per target token of both, encoder included, at one batch size."""
    peers = {
        "ours": Ours(subject.bundle, batch, max_tokens=max_tokens),
        "CTranslate2 int8": CTranslate2(subject.saved, folder, "int8", batch, max_tokens=max_tokens),
    }
    tokens = {
        name: sum(min(len(ids) + 1, max_tokens) for ids in peer.translate_ids(sources, 1))
        for name, peer in peers.items()
    }
    works = {name: (lambda p=peer: p.translate_ids(sources, 1)) for name, peer in peers.items()}
    seconds = alternate(works, runs)
    return {name: 1e6 * statistics.median(seconds[name]) / tokens[name] for name in peers}


class Growth:
    """One run of the parts that compare with CTranslate2."""

    def __init__(self, profile: Profile, subject: Subject, folder: Path, begin: Callable[[str], None]) -> None:
        self.subject, self.folder, self.begin, self.runs = subject, folder, begin, profile.runs or 3
        self.texts = sentences(profile.sources, 4000, subject.bundle.pairs[0].source)

    def lengths(self) -> Figure:
        curves: Curves = {}
        for tokens in LENGTHS:
            self.begin(f"{tokens} source tokens")
            sources = encode(self.subject.tokenizer, of_length(self.subject.tokenizer, self.texts, tokens, 64))
            self._add(curves, tokens, self.subject, sources, 64, MAX_TOKENS)
        return _figure("length", "Cost against sentence length, 64 rows", "source tokens", curves)

    def batches(self) -> Figure:
        curves: Curves = {}
        sources = encode(self.subject.tokenizer, self.texts[:256])
        for batch in BATCHES:
            self.begin(f"{batch} rows")
            self._add(curves, batch, self.subject, sources[: max(32, 4 * batch)], batch, MAX_TOKENS)
        return _figure("rows", "Cost against rows of the batch", "rows", curves, log_x=True)

    def vocabularies(self) -> Figure:
        shapes = {size: replace(PRESETS["small"], vocab_size=size) for size in VOCABULARIES}
        return self._shapes("vocabulary", "tokens of the vocabulary", shapes)

    def decoder_layers(self) -> Figure:
        shapes = {count: replace(PRESETS["small"], decoder_layers=count) for count in DECODER_LAYERS}
        return self._shapes("decoder_layers", "decoder layers", shapes)

    def encoder_layers(self) -> Figure:
        shapes = {count: replace(PRESETS["small"], encoder_layers=count) for count in ENCODER_LAYERS}
        return self._shapes("encoder_layers", "encoder layers", shapes)

    def _shapes(self, name: str, label: str, shapes: dict[int, TransformerConfig]) -> Figure:
        """Random weights; ids of the shipped tokenizer that are in every vocabulary."""
        curves: Curves = {}
        encoded = encode(self.subject.tokenizer, self.texts[:128])
        for size, config in shapes.items():
            self.begin(f"{size} {label}")
            subject = random_subject(config, self.subject.tokenizer, Limits(96, 64))
            sources = [[token % config.vocab_size for token in ids] for ids in encoded]
            self._add(curves, size, subject, sources, 32, RANDOM_TOKENS, self.folder / f"{name}-{size}")
        return _figure(name, f"Cost against {label}, 32 rows", label, curves)

    def _add(
        self,
        curves: Curves,
        x: int,
        subject: Subject,
        sources: list[list[int]],
        batch: int,
        max_tokens: int,
        folder: Path | None = None,
    ) -> None:
        found = microseconds_per_token(subject, folder or self.folder, sources, batch, max_tokens, self.runs)
        for name, value in found.items():
            curves.setdefault(name, []).append([x, value])


def _figure(name: str, title: str, label: str, curves: Curves, log_x: bool = False) -> Figure:
    return Figure(f"growth_{name}", title, label, "CPU µs per target token", curves, log_x=log_x)


def concurrency(profile: Profile, texts: Sequence[str]) -> list[Figure]:
    """Callers that each send their next sentence when the last one is answered: rate, and what a sentence costs."""
    rates, costs = list[list[float]](), list[list[float]]()
    with serving({"ours": ours(profile.bundle)}, core=0) as servers:
        for callers in CALLERS:
            count = max(40, 8 * callers)
            before, began = servers["ours"].cpu_seconds(), time.perf_counter()
            ask_all(servers["ours"], texts, count, callers)
            rates.append([callers, count / (time.perf_counter() - began)])
            costs.append([callers, 1000 * (servers["ours"].cpu_seconds() - before) / count])
    names = ("growth_callers", "growth_caller_cost")
    titles = ("Rate against callers, over HTTP", "Cost of a sentence against callers, over HTTP")
    labels = ("sentences per second", "CPU ms of the server per sentence")
    return [
        Figure(name, title, "callers", label, {"ours": points}, log_x=True)
        for name, title, label, points in zip(names, titles, labels, (rates, costs), strict=True)
    ]


def ask_all(server: Server, texts: Sequence[str], count: int, callers: int) -> None:
    with ThreadPoolExecutor(callers) as pool:
        list(pool.map(server.ask, (texts[i % len(texts)] for i in range(count))))


def memory_by_rows(profile: Profile) -> Figure:
    """Resident memory of a server that is ready, by its setting."""
    points: list[list[float]] = []
    for rows in SERVED_ROWS:
        with serving({"ours": ours(profile.bundle, max_rows=str(rows))}, core=0) as servers:
            points.append([rows, resident_mb(servers["ours"])])
    return Figure("growth_memory_rows", "Memory against rows", "rows", "resident MB", {"ours": points})


def memory_by_requests(profile: Profile, texts: Sequence[str]) -> Figure:
    """Resident memory of one server after ever more requests."""
    points: list[list[float]] = []
    with serving({"ours": ours(profile.bundle)}, core=0) as servers:
        for before, after in zip((0, *REQUESTS), REQUESTS, strict=False):
            ask_all(servers["ours"], texts, after - before, 8)
            points.append([after, resident_mb(servers["ours"])])
    return Figure("growth_memory_requests", "Memory against requests", "requests", "resident MB", {"ours": points})


def resident_mb(server: Server) -> float:
    return float(server.process.memory_info().rss) / 2**20


def start_up(profile: Profile, runs: int) -> Table:
    """From nothing to the first translated sentence, with every bundle beside the given one, on one core."""
    wall, processor, memory = list[float](), list[float](), list[float]()
    for number in range(runs + 1):
        began = time.perf_counter()
        with serving({"ours": ours(profile.bundle)}, core=0, settle_seconds=0.0) as servers:  # ready: it translated
            if number:  # the first one brings files into the page cache, and writes bytecode
                wall.append(time.perf_counter() - began)
                processor.append(servers["ours"].cpu_seconds())
                memory.append(resident_mb(servers["ours"]))
    rows: list[list[Cell]] = [
        ["until the first translation, seconds", spread(wall)],
        ["CPU time of the server until then, seconds", spread(processor)],
        ["resident memory then, MB", spread(memory)],
    ]
    names = sorted(path.name for path in profile.bundle.parent.iterdir() if path.is_dir())
    return Table(f"Cold start with {' and '.join(names)}", ["what", "median (range)"], rows)


def run(profile: Profile) -> Report:
    runs = profile.runs or profile.choose(2, 5)
    num_shapes = len(LENGTHS) + len(BATCHES) + len(VOCABULARIES) + len(DECODER_LAYERS) + len(ENCODER_LAYERS)
    with steps(profile, "growth", profile.choose(1, num_shapes + 4)) as begin:
        begin("start-up")
        tables = [start_up(profile, runs)]
        figures = [] if profile.quick else _figures(profile, begin)
    notes = [
        "Start-up: one core, one decode loop, files in the page cache, bytecode written as by an installation; polled "
        "ten times a second.",
        "Costs are CPU time per target token (end included), encoder included, ids in and ids out, one thread.",
        f"Models of other shapes have random weights and generate {RANDOM_TOKENS} tokens for every sentence.",
    ]
    return Report("growth", "Growth and start-up", tables, [], figures, notes)


def _figures(profile: Profile, begin: Callable[[str], None]) -> list[Figure]:
    subject = shipped(profile.model, profile.bundle)
    with tempfile.TemporaryDirectory() as folder, pinned(0), collected():
        growth = Growth(profile, subject, Path(folder), begin)
        parts = (growth.lengths, growth.batches, growth.vocabularies, growth.decoder_layers, growth.encoder_layers)
        figures = [part() for part in parts]
    begin("callers")
    with pinned(1):  # the load on the other core
        figures += concurrency(profile, growth.texts)
        begin("memory by rows")
        figures.append(memory_by_rows(profile))
        begin("memory by requests")
        figures.append(memory_by_requests(profile, growth.texts))
    return figures


if __name__ == "__main__":
    command(run, __doc__)
