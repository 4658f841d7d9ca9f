"""From a foreign network to a published bundle: the steps that every importer shares.

An importer reads foreign files into an `ImportedModel`. This file writes the graphs of the wanted precision, checks
them beside fp32 graphs and the NumPy reference, chooses golden sentences and publishes.
"""

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from dragoman.export import ExportError
from dragoman.export.graphs import Graphs, build_graphs
from dragoman.export.importers.verification import verify_import
from dragoman.export.multi_step import multi_step_graph
from dragoman.export.network import Network
from dragoman.export.operators import FloatOperators, Int8Operators, Ints, Operators, Quantization
from dragoman.export.plain_search import GraphDecoder
from dragoman.export.publish import check_place, content_version, publishing
from dragoman.export.verify import GoldenTrace, GraphTranslator, choose_golden
from dragoman.service.bundles.manifest import (
    DECODER,
    ENCODER,
    EXPLAIN,
    GOLDEN,
    KEEP,
    LEAP,
    PLACE,
    WEIGHTS,
    Bundle,
    Golden,
    Limits,
    Pair,
    Rules,
    SpecialIds,
    TokenizerFiles,
)
from dragoman.service.translation.tokenizer import Tokenizer, load_tokenizer

Announce = Callable[[str], None]
ImportPrecision = Literal["int8", "fp32"]
SENTENCES = Path(__file__).parents[1] / "sentences"
_GOLDEN_GAP, _GOLDEN_COUNT, _MIN_SENTENCES = 0.05, 32, 10


@dataclass(frozen=True)
class ImportedModel:
    """A foreign network, and all that a bundle must know of it."""

    pair: Pair
    network: Network
    quantization: Quantization | None  # None: the bundle can only be fp32
    output_ids: Ints | None  # the tokens that may come out; None: all
    tokenizer: TokenizerFiles
    tokenizer_data: Mapping[str, bytes]  # by file name
    special_ids: SpecialIds
    limits: Limits
    origin: Mapping[str, Any]  # where it comes from, its licence, hashes of the original files
    rules: Rules = field(default_factory=Rules)


def read_check_sentences(language: str, path: Path | None = None) -> list[str]:
    """The sentences that an import is checked with: those of the file, or our own of this language."""
    chosen = path or SENTENCES / f"{language}.txt"
    if path is None and not chosen.is_file():
        raise ExportError(f"there are no sentences in {language} to check the import with: give --verify FILE")
    try:
        lines = chosen.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ExportError(f"{chosen} cannot be read ({error}): give a file of sentences, one a line") from error
    found = [line.strip() for line in lines if line.strip()]
    if len(found) < _MIN_SENTENCES:
        raise ExportError(f"{chosen} has {len(found)} sentences; an import is checked with at least {_MIN_SENTENCES}")
    return found


def publish_imported(
    model: ImportedModel,
    out: Path,
    sentences: Sequence[str],
    precision: ImportPrecision = "int8",
    replace_old: bool = False,
    announce: Announce = lambda step: None,
) -> Bundle:
    check_place(out, replace_old)
    with publishing(out, replace_old) as staging, tempfile.TemporaryDirectory() as scratch:
        for name, data in model.tokenizer_data.items():
            (staging.folder / name).write_bytes(data)
        announce("graphs")
        graphs = _write_graphs(_operators(model, precision), model.limits, staging.folder)
        bundle = _bundle(model, staging.folder, precision, graphs)
        tokenizer = load_tokenizer(bundle)
        exported = _translator(model, staging.folder, graphs, tokenizer)
        reference_graphs = _write_graphs(FloatOperators(model.network, "float32"), model.limits, Path(scratch))
        fp32 = _translator(model, Path(scratch), reference_graphs, tokenizer)
        usable = _encoded(model, tokenizer, sentences)
        _write_golden(model, exported, tokenizer, usable, staging.folder)
        sources = [ids for _, ids in usable]
        promised = precision == "int8"
        evidence = verify_import(model.network, model.special_ids, fp32, exported, sources, promised, announce)
        bundle = staging.seal(bundle, evidence)
    return replace(bundle, path=out)


def _operators(model: ImportedModel, precision: ImportPrecision) -> Operators:
    if precision == "fp32":
        return FloatOperators(model.network, "float32")
    if model.quantization is None:
        raise ExportError("this model has no int8 scales: give --precision fp32")
    return Int8Operators(model.network, model.quantization, model.limits, model.output_ids)


def _write_graphs(operators: Operators, limits: Limits, folder: Path) -> Graphs:
    graphs = build_graphs(operators, limits)
    models = {ENCODER: graphs.encoder, DECODER: graphs.decoder, EXPLAIN: graphs.explain}
    models |= {KEEP: graphs.keep, PLACE: graphs.place, LEAP: multi_step_graph(graphs.decoder, graphs.state)}
    for name, graph in models.items():
        (folder / name).write_bytes(graph.SerializeToString(deterministic=True))
    (folder / WEIGHTS).write_bytes(graphs.weights)
    return graphs


def _bundle(model: ImportedModel, folder: Path, precision: ImportPrecision, graphs: Graphs) -> Bundle:
    return Bundle(
        path=folder,
        name=f"{model.pair.source}-{model.pair.target}",
        version=content_version(folder, sorted(model.tokenizer_data)),
        precision=precision,
        pairs=(model.pair,),
        architecture=model.network.architecture,
        limits=model.limits,
        tokenizer=model.tokenizer,
        special_ids=model.special_ids,
        rules=model.rules,
        state=graphs.state,
        files={},
        evidence={},
        training={"origin": dict(model.origin)},
    )


def _translator(model: ImportedModel, folder: Path, graphs: Graphs, tokenizer: Tokenizer) -> GraphTranslator:
    ids = model.special_ids
    decoder = GraphDecoder(folder, graphs.state, model.limits, bos_id=ids.bos, eos_id=ids.eos)
    return GraphTranslator(decoder, tokenizer, model.limits.max_new_tokens)


def _encoded(model: ImportedModel, tokenizer: Tokenizer, texts: Sequence[str]) -> list[tuple[str, list[int]]]:
    end = (model.tokenizer.source_special_ids or model.special_ids).eos
    encoded = [(text, [*model.pair.source_prefix_ids, *tokenizer.encode([text]), end]) for text in texts]
    return [(text, ids) for text, ids in encoded if len(ids) <= model.limits.max_source_tokens]


def _write_golden(
    model: ImportedModel,
    exported: GraphTranslator,
    tokenizer: Tokenizer,
    usable: Sequence[tuple[str, list[int]]],
    folder: Path,
) -> None:
    chosen = choose_golden(exported, usable, _GOLDEN_COUNT, _GOLDEN_GAP)
    if not chosen:
        raise ExportError(
            f"of {len(usable)} sentences none comes out whole, without repetition and without a close choice: the "
            f"model does not seem to translate from {model.pair.source}; give other sentences with --verify FILE"
        )
    lines = [json.dumps(asdict(_golden(model, tokenizer, found)), ensure_ascii=False) + "\n" for found in chosen]
    (folder / GOLDEN).write_text("".join(lines), "utf-8")


def _golden(model: ImportedModel, tokenizer: Tokenizer, found: GoldenTrace) -> Golden:
    hypothesis = found.trace.hypothesis()
    return Golden(
        source=model.pair.source,
        target=model.pair.target,
        text=found.text,
        translation=tokenizer.decode(hypothesis.ids),
        source_ids=tuple(found.source_ids),
        target_ids=tuple(hypothesis.ids),
        log_probs=tuple(hypothesis.log_probs),
    )
