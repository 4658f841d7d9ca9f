"""What is measured: the shipped model with its bundle, and models of any shape with random weights, exported here.

A random model never ends a sentence by itself (its end-of-sentence row is zero), so that every engine generates as many
tokens as it may: equal work, whatever the roundings. Its bundle carries no evidence and is served by no one. Exports
are kept below `build/bench` by what they depend on: the shape, and the exporter's source.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import onnx
import torch

from dragoman.export.bundle import TOKENIZER
from dragoman.export.calibrate import observe
from dragoman.export.graphs import build_graphs
from dragoman.export.multi_step import multi_step_graph
from dragoman.export.operators import Int8Operators
from dragoman.export.quantize import quantize
from dragoman.export.sentence_files import read_sentences
from dragoman.export.trained_network import network_arrays
from dragoman.model.config import TransformerConfig
from dragoman.model.evaluate import greedy
from dragoman.model.hypothesis import default_limit
from dragoman.model.saved import SavedModel, load_model
from dragoman.model.tokenizer import BOS_ID, EOS_ID, PAD_ID, UNK_ID, Tokenizer
from dragoman.model.transformer import Transformer
from dragoman.service.bundles.manifest import (
    DECODER,
    ENCODER,
    GOLDEN,
    LEAP,
    MANIFEST,
    WEIGHTS,
    Bundle,
    Limits,
    Pair,
    Rules,
    SpecialIds,
    StateTensor,
    TokenizerFiles,
    read_bundle,
    record_file,
)

ROOT = Path(__file__).parents[1]
CACHE = ROOT / "build" / "bench"
OWN_SENTENCES = ROOT / "tests" / "data" / "sentences.tsv"


@dataclass(frozen=True)
class Subject:
    """One model in both forms; the tokenizer's ids may be fewer than the model's."""

    saved: SavedModel
    bundle: Bundle

    @property
    def tokenizer(self) -> Tokenizer:
        return self.saved.tokenizer

    def fitting(self, texts: Sequence[str]) -> list[str]:
        """Those that the bundle takes whole, with their end: the service would split the others, and no peer does."""
        room = self.bundle.limits.max_source_tokens
        return [text for text in texts if len(self.tokenizer.encode(text)) < room]


class FoldedTokenizer(Tokenizer):
    """A tokenizer for a model with a larger vocabulary: the ids it lacks are read as others. Only for random models."""

    def decode(self, ids: Sequence[int]) -> str:
        return super().decode([token % self.vocab_size for token in ids])


class TaggedTokenizer(Tokenizer):
    """For one direction of a model that has several: the tag of the target language before every source."""

    def __init__(self, model: bytes, prefix_ids: Sequence[int]) -> None:
        super().__init__(model)
        self._prefix_ids = list(prefix_ids)

    def encode(self, text: str) -> list[int]:
        return self._prefix_ids + super().encode(text)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return [self._prefix_ids + ids for ids in super().encode_batch(texts)]


def shipped(model: Path, bundle: Path) -> Subject:
    torch.set_num_threads(1)
    saved, served = load_model(model), read_bundle(bundle)
    if prefix_ids := served.pairs[0].source_prefix_ids:
        saved = replace(saved, tokenizer=TaggedTokenizer(saved.tokenizer.model, prefix_ids))
    return Subject(saved, served)


def output_columns(bundle: Bundle) -> int:
    """Tokens that may come out: the last product may leave some out."""
    graph = onnx.load(bundle.file(DECODER), load_external_data=False).graph
    chosen = [tensor.dims[0] for tensor in graph.initializer if tensor.name == "output_ids"]
    return chosen[0] if chosen else bundle.architecture.vocab_size


def whole_vocabulary(subject: Subject) -> Bundle:
    """The same weights exported so that every token may come out, as it may in the peers."""
    limits, language = subject.bundle.limits, subject.bundle.pairs[0].source
    texts = [text for text in read_sentences(OWN_SENTENCES, language) if text.strip()]
    sources = [[*subject.tokenizer.encode(text), EOS_ID] for text in texts]
    sources = [ids for ids in sources if len(ids) <= limits.max_source_tokens]
    return _export(subject.saved, limits, sources, "whole-vocabulary")


def random_subject(config: TransformerConfig, tokenizer: Tokenizer, limits: Limits) -> Subject:
    """Seeded: the same shape is the same model."""
    torch.set_num_threads(1)
    torch.manual_seed(7)
    network = Transformer(config).eval()
    with torch.no_grad():
        network.embedding.weight[EOS_ID] = 0
    saved = SavedModel(
        network, FoldedTokenizer(tokenizer.model), [{"source": "pt", "target": "en"}], {"note": "random"}
    )
    fewest = min(config.vocab_size, tokenizer.vocab_size)
    sources = [[*torch.randint(4, fewest, (12,)).tolist(), EOS_ID] for _ in range(24)]
    return Subject(saved, _export(saved, limits, sources, "random"))


def _export(saved: SavedModel, limits: Limits, sources: list[list[int]], kind: str) -> Bundle:
    """int8, calibrated on these sources; the manifest is written last, so that half an export is made again."""
    directory = CACHE / f"{kind}-{_key(saved, limits)}"
    if not (directory / MANIFEST).exists():
        directory.mkdir(parents=True, exist_ok=True)
        graphs = build_graphs(_operators(saved, limits, sources), limits)
        for name, model in (
            (ENCODER, graphs.encoder),
            (DECODER, graphs.decoder),
            (LEAP, multi_step_graph(graphs.decoder, graphs.state)),
        ):
            (directory / name).write_bytes(model.SerializeToString(deterministic=True))
        (directory / WEIGHTS).write_bytes(graphs.weights)
        (directory / TOKENIZER).write_bytes(saved.tokenizer.model)
        (directory / GOLDEN).write_text("")
        _write_manifest(directory, saved, limits, graphs.state)
    return read_bundle(directory, check_hashes=False)


def _operators(saved: SavedModel, limits: Limits, sources: list[list[int]]) -> Int8Operators:
    most = [min(default_limit(ids), limits.max_new_tokens, 40) for ids in sources]
    targets = [hypothesis.ids for hypothesis in greedy(saved.network, sources, most)]
    samples = observe(saved.network, zip(sources, targets, strict=True))
    return Int8Operators(*quantize(network_arrays(saved.network), samples), limits)


def _write_manifest(directory: Path, saved: SavedModel, limits: Limits, state: tuple[StateTensor, ...]) -> None:
    bundle = Bundle(
        path=directory,
        name=directory.name,
        version="0",
        precision="int8",
        pairs=(Pair("pt", "en"),),
        architecture=network_arrays(saved.network).architecture,
        limits=limits,
        tokenizer=TokenizerFiles("sentencepiece", {"model": TOKENIZER}),
        special_ids=SpecialIds(PAD_ID, UNK_ID, BOS_ID, EOS_ID, ()),
        rules=Rules(),
        state=state,
        files={path.name: record_file(path) for path in sorted(directory.iterdir())},
        evidence={"note": "made by a benchmark, proven by nothing"},
        training={},
    )
    (directory / MANIFEST).write_text(bundle.to_json(), "utf-8")


def _key(saved: SavedModel, limits: Limits) -> str:
    """Changes with the weights, the limits and the exporter."""
    digest = hashlib.sha256(f"{saved.config} {limits}".encode())
    digest.update(saved.network.embedding.weight.detach().numpy().tobytes())
    for path in sorted([*(ROOT / "export").glob("*.py"), ROOT / "service" / "bundles" / "manifest.py"]):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]
