"""Bundles without a network: real files and a real tokenizer, and an engine whose runner does something simple.

What the runner does is written in the bundle's `weights.bin`: `copy`, `reverse`, `forget` (drops placeholders),
`double` (says every placeholder twice), `loop` (repeats itself for ever), `long` (never ends), `mute` (says nothing);
the last three only where the source has more than `SHORT` tokens, so that they have golden sentences too.
"""

import csv
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path

import numpy as np

from dragoman.model.tokenizer import NUM_PLACEHOLDERS, placeholder_tag
from dragoman.service.bundles.manifest import (
    DECODER,
    ENCODER,
    GOLDEN,
    MANIFEST,
    WEIGHTS,
    Architecture,
    Bundle,
    Golden,
    Limits,
    Pair,
    Rules,
    SpecialIds,
    TokenizerFiles,
    record_file,
)
from dragoman.service.catalog.catalog import Catalog
from dragoman.service.engine.job import DecodingRules
from dragoman.service.engine.loop import Engine
from dragoman.service.engine.scheduler import EngineSettings
from dragoman.service.translation.tokenizer import SentencePieceVocabulary, Tokenizer, load_tokenizer
from tests.data.make_tokenizers import path_of
from tests.engine.reverse_runner import EOS, FakeRunner, LogProbs

DATA = Path(__file__).parent.parent / "data"
VOCAB_SIZE = 900
LOG_PROB = -0.25
SHORT = 4
SPECIAL = SpecialIds(pad=0, unk=1, bos=2, eos=EOS, placeholder_ids=())

FakeModel = Callable[[list[int], frozenset[int]], list[int]]  # source and placeholder ids -> target ids


MODELS: dict[str, FakeModel] = {
    "copy": lambda source, placeholders: source,
    "reverse": lambda source, placeholders: source[::-1],
    "forget": lambda source, placeholders: [token for token in source if token not in placeholders],
    "double": lambda source, placeholders: [t for token in source for t in [token] * (1 + (token in placeholders))],
    "loop": lambda source, placeholders: source[:2] * 200 if len(source) > SHORT else source,
    "long": lambda source, placeholders: [60 + i % 83 for i in range(400)] if len(source) > SHORT else source,
    "mute": lambda source, placeholders: [] if len(source) > SHORT else source,
}


@lru_cache
def sentences() -> tuple[tuple[str, str], ...]:
    """Our own sentences: (Portuguese, English)."""
    with (DATA / "sentences.tsv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    return tuple((row["pt"], row["en"]) for row in rows)


@lru_cache
def tokenizer_model() -> bytes:
    return path_of(VOCAB_SIZE).read_bytes()


@lru_cache
def placeholder_ids() -> tuple[int, ...]:
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor(model_proto=tokenizer_model())
    return tuple(processor.piece_to_id(placeholder_tag(number)) for number in range(NUM_PLACEHOLDERS))


@lru_cache
def tokenizer(placeholders: bool = True) -> Tokenizer:
    return Tokenizer(SentencePieceVocabulary(tokenizer_model(), placeholder_ids() if placeholders else ()))


def log_probs_of(translate: Callable[[list[int]], list[int]]) -> LogProbs:
    """Log-probabilities [vocab] that are sure of what `translate` says."""
    known: dict[tuple[int, ...], list[int]] = {}

    def log_probs(source: tuple[int, ...], prefix: tuple[int, ...]) -> np.ndarray:
        if source not in known:
            known[source] = [*translate([token for token in source if token != EOS]), EOS]
        target = known[source]
        scores = -4.0 - np.arange(VOCAB_SIZE, dtype=np.float32) / VOCAB_SIZE  # [vocab]
        scores[target[min(len(prefix), len(target) - 1)]] = LOG_PROB
        return scores

    return log_probs


def fake_runner(kind: str, max_rows: int = 8, max_source_tokens: int = 64) -> FakeRunner:
    placeholders = frozenset(placeholder_ids())
    return FakeRunner(log_probs_of(lambda source: MODELS[kind](source, placeholders)), max_rows, max_source_tokens)


def write_bundle(
    path: Path,
    kind: str = "copy",
    pairs: Sequence[tuple[str, str]] = (("pt", "en"),),
    version: str = "1",
    placeholders: bool = True,
    max_source_tokens: int = 64,
    golden_kind: str | None = None,
    name: str | None = None,
    default_beam_size: int = 1,
) -> Bundle:
    """Write a bundle directory; `golden_kind` other than `kind` gives golden sentences that it fails."""
    path.mkdir(parents=True, exist_ok=True)
    (path / ENCODER).write_bytes(b"encoder")
    (path / DECODER).write_bytes(b"decoder")
    (path / WEIGHTS).write_text(kind)
    (path / "tokenizer.model").write_bytes(tokenizer_model())
    (path / GOLDEN).write_text(
        "".join(json.dumps(asdict(each)) + "\n" for each in _goldens(golden_kind or kind, pairs))
    )
    names = (ENCODER, DECODER, WEIGHTS, "tokenizer.model", GOLDEN)
    bundle = Bundle(
        path=path,
        name=name or path.name,
        version=version,
        precision="int8",
        pairs=tuple(Pair(source, target) for source, target in pairs),
        architecture=Architecture(VOCAB_SIZE, 8, 16, 2, 1, 1, "pre", "sinusoidal", 64, share_layers=False),
        limits=Limits(max_source_tokens, 256),
        tokenizer=TokenizerFiles("sentencepiece", {"model": "tokenizer.model"}),
        special_ids=SpecialIds(0, 1, 2, EOS, placeholder_ids() if placeholders else ()),
        rules=Rules(default_beam_size=default_beam_size),
        state=(),
        files={name: record_file(path / name) for name in names},
        evidence={},
        training={},
    )
    (path / MANIFEST).write_text(bundle.to_json())
    return bundle


def _goldens(kind: str, pairs: Sequence[tuple[str, str]]) -> list[Golden]:
    source, target = pairs[0]
    text = "Fim" if kind in ("loop", "long", "mute") else "A porta do jardim ficou aberta."
    ids = tokenizer().encode([text])
    output = tuple(MODELS[kind](ids, frozenset(placeholder_ids())))
    return [Golden(source, target, text, "", (*ids, EOS), output, (LOG_PROB,) * (len(output) + 1))]


class FakeEngines:
    """Opens engines for fake bundles, and remembers them."""

    def __init__(
        self, clock: Callable[[], float] | None = None, settings: EngineSettings | None = None, max_rows: int = 8
    ) -> None:
        self.clock, self.settings, self.max_rows = clock, settings, max_rows
        self.runners: dict[str, FakeRunner] = {}
        self.engines: dict[str, Engine] = {}
        self.stopped: list[str] = []

    def __call__(self, bundle: Bundle) -> Engine:
        label = f"{bundle.name} {bundle.version}"
        kind = bundle.file(WEIGHTS).read_text()
        runner = fake_runner(kind, self.max_rows, bundle.limits.max_source_tokens)
        rules = DecodingRules(max_new_tokens=bundle.limits.max_new_tokens, eos_id=EOS)
        extra = {} if self.clock is None else {"clock": self.clock}
        engine = RecordingEngine([runner], rules, self.settings, **extra)
        engine.on_stop = lambda: self.stopped.append(label)
        self.runners[label], self.engines[label] = runner, engine
        return engine


class RecordingEngine(Engine):
    """An engine that says when it is stopped."""

    on_stop: Callable[[], None] = staticmethod(lambda: None)

    def stop(self, drain: bool = True, timeout_seconds: float | None = None) -> None:
        super().stop(drain, timeout_seconds)
        self.on_stop()


def open_catalog(*roots: Path, engines: FakeEngines | None = None, pivot: bool = True) -> Catalog:
    return Catalog(roots, engines or FakeEngines(), load_tokenizer, pivot)
