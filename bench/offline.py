"""A file of sentences against CTranslate2 on the same weights: throughput in batches, and latency one at a time.

    python -m bench.offline MODEL.safetensors BUNDLE SOURCES [--limit N] [--json OUT]

One thread each, CPU time of this process, alternating runs. CTranslate2 runs at its best batch size and compute type,
found by a sweep on part of the file. Both get text and give text: the same tokenizer is counted for both. Both stop a
sentence at the same length. Ours is the service's engine (scheduler, search, loop, runner), turned by hand.
"""

import argparse
import gc
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import ctranslate2

from bench.ctranslate2_twin import convert, vocabulary
from model.saved import SavedModel, load_model
from model.tokenizer import EOS_ID, Tokenizer
from service.bundles.manifest import Bundle, read_bundle
from service.engine.job import DecodingOptions, DecodingRules, Job
from service.engine.loop import Engine
from service.engine.runner import OrtRunner, OrtSessions
from service.engine.scheduler import EngineSettings

MAX_TOKENS = 128  # of a translation, for both
TYPES = ("int8", "int8_float32", "float32")
BATCHES = (16, 32, 64, 128)
Translate = Callable[[Sequence[str], int], list[str]]
Work = Callable[[], object]


def encode(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    # A batch of one would start SentencePiece's threads, for both of us.
    return [tokenizer.encode(texts[0])] if len(texts) == 1 else tokenizer.encode_batch(texts)


class Ours:
    """The engine on one runner; a file is submitted longest first, so that the batch does not end in one long row."""

    def __init__(self, bundle: Bundle, tokenizer: Tokenizer, rows: int) -> None:
        self._tokenizer = tokenizer
        settings = EngineSettings(max_queued_tokens=1 << 40, interactive_share=0.0)
        runner = OrtRunner(OrtSessions(bundle, threads=1, provider="cpu"), rows)
        self._engine = Engine([runner], DecodingRules.of(bundle), settings)

    def translate(self, texts: Sequence[str], beam_size: int) -> list[str]:
        sources = encode(self._tokenizer, texts)
        order = sorted(range(len(texts)), key=lambda i: -len(sources[i]))
        options = DecodingOptions(beam_size, max_new_tokens=MAX_TOKENS)
        jobs = {i: Job([*sources[i], EOS_ID], options, request="bench") for i in order}
        self._engine.submit_all(list(jobs.values()))
        while self._engine.turn():
            pass
        best = [jobs[i].future.result(0).hypotheses[0].ids for i in range(len(texts))]
        return [self._tokenizer.decode(ids) for ids in best]


class Theirs:
    """CTranslate2, which sorts a file by length and batches it by itself."""

    def __init__(self, directory: Path, tokenizer: Tokenizer, compute_type: str, batch: int) -> None:
        self._tokenizer, self._batch = tokenizer, batch
        self._names = vocabulary(tokenizer)
        self._ids = {name: i for i, name in enumerate(self._names)}
        self._translator = ctranslate2.Translator(
            str(directory), inter_threads=1, intra_threads=1, compute_type=compute_type
        )

    def translate(self, texts: Sequence[str], beam_size: int) -> list[str]:
        sources = [[self._names[i] for i in ids] + ["</s>"] for ids in encode(self._tokenizer, texts)]
        results = self._translator.translate_batch(
            sources, beam_size=beam_size, max_batch_size=self._batch, max_decoding_length=MAX_TOKENS
        )
        return [self._tokenizer.decode([self._ids[name] for name in result.hypotheses[0]]) for result in results]


@dataclass(frozen=True)
class Comparison:
    what: str
    sentences: int
    ours_seconds: float  # medians, of CPU time
    theirs_seconds: float
    ratio: float  # theirs / ours: above 1, ours is faster; the median of the pairs
    ratio_low: float
    ratio_high: float
    theirs: str

    def __str__(self) -> str:
        ours, theirs = (self.sentences / s for s in (self.ours_seconds, self.theirs_seconds))
        return (
            f"{self.what}: ours {ours:.0f}, CTranslate2 ({self.theirs}) {theirs:.0f} sentences per CPU second; "
            f"ratio {self.ratio:.2f} ({self.ratio_low:.2f} to {self.ratio_high:.2f})"
        )


def cpu_seconds(work: Work) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def sweep(
    saved: SavedModel, folder: Path, texts: Sequence[str], beam_size: int, types: Sequence[str], batches: Sequence[int]
) -> tuple[Theirs, str]:
    """The compute type and batch size that are fastest on these texts."""
    best: tuple[float, Theirs, str] | None = None
    for compute_type in types:
        directory = folder / compute_type
        if not directory.exists():
            convert(saved, directory, None if compute_type == "float32" else compute_type)
        for batch in batches:
            theirs = Theirs(directory, saved.tokenizer, compute_type, batch)
            theirs.translate(texts[:50], beam_size)
            seconds = min(cpu_seconds(lambda t=theirs: t.translate(texts, beam_size)) for _ in range(2))
            if best is None or seconds < best[0]:
                best = seconds, theirs, f"{compute_type}, batches of {batch}"
    assert best is not None
    return best[1], best[2]


def compare(
    what: str, ours: Callable[[], object], theirs: Callable[[], object], count: int, name: str, runs: int
) -> Comparison:
    ours(), theirs()
    pairs = [(cpu_seconds(ours), cpu_seconds(theirs)) for _ in range(runs)]
    ratios = sorted(b / a for a, b in pairs)
    medians = [statistics.median(side) for side in zip(*pairs, strict=True)]
    return Comparison(what, count, *medians, statistics.median(ratios), ratios[0], ratios[-1], name)


def one_at_a_time(translate: Translate, texts: Sequence[str]) -> Work:
    return lambda: [translate([text], 1) for text in texts]


def run(arguments: argparse.Namespace) -> list[Comparison]:
    saved, bundle = load_model(arguments.model), read_bundle(arguments.bundle)
    texts = arguments.sources.read_text("utf-8").splitlines()
    texts = texts[:: max(1, len(texts) // arguments.limit)][: arguments.limit] if arguments.limit else texts
    gc.collect()
    gc.freeze()  # torch, which reads the model here, is no part of the service: its objects are not to be collected
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for beam_size in arguments.beams:
            some = texts[:: max(1, len(texts) // 400)]
            theirs, name = sweep(saved, Path(folder), some, beam_size, arguments.types, arguments.batches)
            ours = Ours(bundle, saved.tokenizer, arguments.rows)
            found.append(
                compare(
                    "greedy" if beam_size == 1 else f"beam {beam_size}",
                    lambda o=ours, b=beam_size: o.translate(texts, b),
                    lambda t=theirs, b=beam_size: t.translate(texts, b),
                    len(texts),
                    name,
                    arguments.runs,
                )
            )
            print(found[-1], flush=True)
        few = texts[:: max(1, len(texts) // 100)][:100]
        theirs, ours = Theirs(Path(folder) / "int8", saved.tokenizer, "int8", 1), Ours(bundle, saved.tokenizer, 8)
        one, other = one_at_a_time(ours.translate, few), one_at_a_time(theirs.translate, few)
        found.append(compare("one at a time", one, other, len(few), "int8", arguments.runs))
        print(found[-1], flush=True)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("model", type=Path)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("sources", type=Path)
    parser.add_argument("--limit", type=int, default=0, help="take so many sentences, evenly from the file")
    parser.add_argument("--beams", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--rows", type=int, default=64, help="of our batch")
    parser.add_argument("--types", nargs="+", default=TYPES, help="of CTranslate2's sweep")
    parser.add_argument("--batches", type=int, nargs="+", default=BATCHES, help="of CTranslate2's sweep")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(arguments)
    found = run(given)
    if given.json:
        record: dict[str, Any] = {"versions": {"ctranslate2": ctranslate2.__version__}}
        record["comparisons"] = [asdict(comparison) for comparison in found]
        given.json.write_text(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
