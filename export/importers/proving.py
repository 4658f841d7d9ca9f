"""From an imported model to a published bundle: graphs, golden sentences, and the evidence that both are right.

The fp32 graphs must choose the tokens of the NumPy reference pass. int8 is calibrated by that pass, compared with fp32,
and must give every sentence the same bits alone and in a crowd.
"""

import hashlib
import json
import os
import random
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from dragoman.export import ExportError
from dragoman.export.graphs import Graphs, build_graphs
from dragoman.export.importers.imported import ImportedModel
from dragoman.export.importers.reference import Reference, observe_plainly
from dragoman.export.multi_step import multi_step_graph
from dragoman.export.operators import FloatOperators, Int8Operators, Operators
from dragoman.export.plain_search import GraphDecoder, Trace
from dragoman.export.publish import Staging, check_place, publishing
from dragoman.export.quantize import quantize
from dragoman.export.verify import GraphTranslator, VerificationError, choose_golden, verify_invariance
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
    Pair,
    Precision,
)
from dragoman.service.translation.tokenizer import MarianVocabulary, Tokenizer

TIE, SAME = 1e-4, 1e-3  # of a log-probability: a tie, and what rounding may differ by
GOLDEN_COUNT, GOLDEN_GAP = 16, 0.05
PARITY, CALIBRATION, INVARIANCE = 50, 128, 50  # sentences

Sentences = list[tuple[str, list[int]]]


@dataclass(frozen=True)
class ImportOptions:
    out: Path
    precision: Precision = "int8"
    calibration: Path | None = None
    replace: bool = False


def publish_imported(model: ImportedModel, options: ImportOptions, console: Console) -> list[Bundle]:
    """One bundle in `out`; for several pairs, a folder of them, which share the files that are the same."""
    if options.precision == "int8" and options.calibration is None:
        raise ExportError("give --calibration FILE with source sentences for int8 scales, or --precision fp32")
    if len(model.pairs) == 1:
        return [_publish(model, model.pairs[0], options, console)]
    bundles: list[Bundle] = []
    for pair in model.pairs:
        place = replace(options, out=options.out / f"{pair.source}-{pair.target}")
        bundles.append(_publish(model, pair, place, console))
        _link_same_files(bundles[0], bundles[-1])
    return bundles


def _publish(model: ImportedModel, pair: Pair, options: ImportOptions, console: Console) -> Bundle:
    check_place(options.out, options.replace)
    with publishing(options.out, options.replace) as staging:
        bundle = _Import(model, pair, options, console).write(staging)
    console.print(f"[green]{options.out}[/]: {bundle.name} {bundle.version}, {bundle.precision}")
    return replace(bundle, path=options.out)


def _link_same_files(first: Bundle, other: Bundle) -> None:
    for name, record in other.files.items():
        if first.path != other.path and first.files.get(name) == record and record.bytes > 4096:
            linked = other.path / f".{name}"
            os.link(first.path / name, linked)
            linked.replace(other.path / name)


class _Import:
    def __init__(self, model: ImportedModel, pair: Pair, options: ImportOptions, console: Console) -> None:
        self._model, self._pair, self._options, self._console = model, pair, options, console
        self._tokenizer = _open_tokenizer(model)

    def write(self, staging: Staging) -> Bundle:
        for name, data in self._model.files.items():
            (staging.folder / name).write_bytes(data)
        sentences = self._sentences()
        with tempfile.TemporaryDirectory() as scratch:
            floats = FloatOperators(self._model.network, "float32")
            is_int8 = self._options.precision == "int8"
            reference, graphs = self._write_graphs(floats, Path(scratch) if is_int8 else staging.folder)
            evidence: dict[str, Any] = {"reference": self._parity(reference, sentences[:PARITY])}
            exported = reference
            if is_int8:
                exported, graphs = self._write_graphs(self._int8(reference, sentences), staging.folder)
                evidence["agreement"] = self._agreement(reference, exported, sentences)
            self._write_golden(exported, sentences, staging.folder)
            some = [ids for _, ids in sentences[:INVARIANCE]]
            evidence["invariance"] = verify_invariance(exported, some, promised=is_int8)
        return staging.seal(self._bundle(staging.folder, graphs), evidence)

    def _sentences(self) -> Sentences:
        path, pair, ends = self._options.calibration, self._pair, self._model.tokenizer.source_end
        texts = _lines(path) if path is not None else _word_salad(self._model, 200)
        eos = [self._source_eos()] if ends else []
        prefix = pair.source_prefix_ids
        encoded = [(text, [*prefix, *self._tokenizer.encode([text]), *eos]) for text in texts if text.strip()]
        usable = [(text, ids) for text, ids in encoded if 1 < len(ids) <= self._model.limits.max_source_tokens // 2]
        if not usable:
            raise ExportError(f"{path} has no usable sentence: source sentences, one a line, were expected")
        return usable

    def _source_eos(self) -> int:
        return (self._model.tokenizer.source_special_ids or self._model.special_ids).eos

    def _write_graphs(self, operators: Operators, folder: Path) -> tuple[GraphTranslator, Graphs]:
        graphs, limits, special = (
            build_graphs(operators, self._model.limits),
            self._model.limits,
            self._model.special_ids,
        )
        models = {ENCODER: graphs.encoder, DECODER: graphs.decoder, EXPLAIN: graphs.explain}
        models |= {KEEP: graphs.keep, PLACE: graphs.place, LEAP: multi_step_graph(graphs.decoder, graphs.state)}
        for name, graph in models.items():
            (folder / name).write_bytes(graph.SerializeToString(deterministic=True))
        (folder / WEIGHTS).write_bytes(graphs.weights)
        decoder = GraphDecoder(folder, graphs.state, limits, bos_id=special.bos, eos_id=special.eos)
        return GraphTranslator(decoder, self._tokenizer, limits.max_new_tokens), graphs

    def _int8(self, reference: GraphTranslator, sentences: Sentences) -> Operators:
        self._announce("calibration")
        sources = [ids for _, ids in sentences[:CALIBRATION]]
        start = self._model.special_ids.bos
        targets = [[start, *trace.hypothesis().ids] for trace in reference.greedy(sources)]
        observed = observe_plainly(self._model.network, zip(sources, targets, strict=True))
        return Int8Operators(*quantize(self._model.network, observed), self._model.limits)

    def _parity(self, translator: GraphTranslator, sentences: Sentences) -> dict[str, Any]:
        """The graphs choose what the reference pass would choose at every step, or something that ties with it."""
        self._announce("the reference pass against ONNX Runtime")
        reference, sources = Reference(self._model.network), [ids for _, ids in sentences]
        ties = worst = 0.0
        for source, trace in zip(sources, translator.greedy(sources), strict=True):
            expected = reference.log_probs(source, [self._model.special_ids.bos, *trace.ids[:-1]])  # [T, V]
            chosen = expected[np.arange(len(trace.ids)), trace.ids]
            gap, off = float((expected.max(-1) - chosen).max()), float(np.abs(chosen - trace.log_probs).max())
            if gap > TIE or off > SAME:
                raise VerificationError(
                    f"the graphs and the reference pass translate the source {source} differently: a token is "
                    f"{gap:.2g} worse, a log-probability {off:.2g} off"
                )
            ties, worst = ties + (gap > 0), max(worst, off)
        return {"sentences": len(sources), "different": 0, "ties": int(ties), "largest_difference": worst}

    def _agreement(self, reference: GraphTranslator, exported: GraphTranslator, some: Sentences) -> dict[str, Any]:
        self._announce("int8 against fp32")
        sources = [ids for _, ids in some[:CALIBRATION]]
        pairs = zip(reference.greedy(sources), exported.greedy(sources), strict=True)
        return {"sentences": len(sources), "identical": sum(one.ids == other.ids for one, other in pairs)}

    def _write_golden(self, exported: GraphTranslator, sentences: Sentences, folder: Path) -> None:
        chosen = choose_golden(exported, sentences, GOLDEN_COUNT, GOLDEN_GAP)
        if not chosen:
            raise ExportError(
                "no sentence comes out whole and without a close choice: give other ones by --calibration"
            )
        lines = [json.dumps(asdict(self._golden(each.text, each.source_ids, each.trace))) + "\n" for each in chosen]
        (folder / GOLDEN).write_text("".join(lines), "utf-8")

    def _golden(self, text: str, source_ids: Sequence[int], trace: Trace) -> Golden:
        hypothesis, pair = trace.hypothesis(), self._pair
        ids, translation = tuple(hypothesis.ids), self._tokenizer.decode(hypothesis.ids)
        return Golden(pair.source, pair.target, text, translation, tuple(source_ids), ids, tuple(hypothesis.log_probs))

    def _bundle(self, folder: Path, graphs: Graphs) -> Bundle:
        digest = hashlib.sha256()
        for name in (ENCODER, DECODER, LEAP, WEIGHTS, *sorted(self._model.files)):
            digest.update((folder / name).read_bytes())
        model, pair = self._model, self._pair
        return Bundle(
            path=folder,
            name=f"{pair.source}-{pair.target}",
            version=digest.hexdigest()[:12],
            precision=self._options.precision,
            pairs=(pair,),
            architecture=model.network.architecture,
            limits=model.limits,
            tokenizer=model.tokenizer,
            special_ids=model.special_ids,
            rules=model.rules,
            state=graphs.state,
            files={},
            evidence={},
            training=dict(model.origin),
        )

    def _announce(self, step: str) -> None:
        self._console.print(f"  {step}", style="dim", markup=False, highlight=False, soft_wrap=True)


def _open_tokenizer(model: ImportedModel) -> Tokenizer:
    sides = []
    for side, special in (("source", model.tokenizer.source_special_ids), ("target", model.special_ids)):
        files = model.tokenizer.files
        numbers = json.loads(model.files[files[f"{side}_vocabulary"]])
        try:
            sides.append(MarianVocabulary(model.files[files[side]], numbers, (special or model.special_ids).unk))
        except (RuntimeError, ValueError) as error:
            raise ExportError(f"{files[side]} is not a SentencePiece model ({error}): copy it again") from error
    return Tokenizer(*sides)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text("utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise ExportError(f"{path} cannot be read ({error}): source sentences, one a line, were expected") from error


def _word_salad(model: ImportedModel, count: int) -> list[str]:
    """Texts of pieces of the source side: what a model is proven with when nobody gives sentences."""
    numbers = json.loads(model.files[model.tokenizer.files["source_vocabulary"]])
    pieces = sorted(piece for piece in numbers if piece.strip("\u2581").isalpha())
    chance = random.Random(0)
    texts = ("".join(chance.choices(pieces, k=chance.randint(3, 12))) for _ in range(count))
    return [text.replace("\u2581", " ").strip() for text in texts] if pieces else []
