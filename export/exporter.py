"""One export from a saved model to a published bundle: the order of the steps.

Builds fp32 graphs as the reference and the graphs of the wanted precision, chooses golden sentences, has everything
checked, and hands files, manifest and evidence to `export.publish`.
"""

import json
import tempfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from dragoman.export import ExportError
from dragoman.export.bundle import TOKENIZER, assemble_bundle
from dragoman.export.evidence import Behaviour, ScoredSentences, check_not_worse
from dragoman.export.graphs import Graphs, build_graphs
from dragoman.export.multi_step import multi_step_graph
from dragoman.export.operators import FloatOperators, Operators
from dragoman.export.options import ExportOptions, check_options
from dragoman.export.plain_search import GraphDecoder
from dragoman.export.precision import OperatorChoice
from dragoman.export.publish import Staging, publishing
from dragoman.export.quality import verify_quality
from dragoman.export.sentence_files import SentenceReader, read_lines
from dragoman.export.torch_parity import verify_parity
from dragoman.export.trained_network import network_arrays
from dragoman.export.verify import (
    GoldenTrace,
    GraphTranslator,
    ParallelText,
    choose_golden,
    verify_invariance,
)
from dragoman.model.saved import SavedModel, load_model
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
)

GOLDEN_GAP, GOLDEN_COUNT = 0.05, 32
Test = tuple[ParallelText, list[list[int]]]


def export(options: ExportOptions, console: Console) -> Bundle:
    check_options(options)
    saved = load_model(options.checkpoint)
    pair = _find_pair(saved, options.pair)
    with publishing(options.out, options.replace) as staging:
        bundle = Exporter(options, saved, pair, console).write(staging)
    console.print(f"[green]{options.out}[/]: {bundle.name} {bundle.version}, {bundle.precision}")
    return replace(bundle, path=options.out)


def _find_pair(saved: SavedModel, name: str | None) -> Pair:
    known = (Pair(p["source"], p["target"], tuple(p["source_prefix_ids"])) for p in saved.pairs)
    pairs = {f"{pair.source}-{pair.target}": pair for pair in known}
    if name is None and len(pairs) == 1:
        return next(iter(pairs.values()))
    if name not in pairs:
        raise ExportError(f"this model translates {', '.join(pairs)}; name one with --pair: a bundle serves one pair")
    return pairs[name]


class Exporter:
    """One export; its steps share the saved model and the sentences to check it with."""

    def __init__(self, options: ExportOptions, saved: SavedModel, pair: Pair, console: Console) -> None:
        self.options, self.saved, self.pair, self.console = options, saved, pair, console
        self.network = network_arrays(saved.network)
        longest = saved.config.max_positions
        wanted = options.limits
        self.limits = Limits(min(wanted.max_source_tokens, longest), min(wanted.max_new_tokens, longest))
        self.reader = SentenceReader(saved.tokenizer, pair, self.limits)

    def write(self, staging: Staging) -> Bundle:
        tests = [self.reader.read_test(source, reference) for source, reference in self.options.tests]
        scored = [ScoredSentences.read(text, self.reader) for text in self.options.scored_texts]
        behaviour, about = self._behaviour(), self._about()
        with tempfile.TemporaryDirectory() as scratch:
            reference = self._write_graphs(FloatOperators(self.network, "float32"), Path(scratch))[0]
            choice = OperatorChoice(self.options, self.saved, self.network, self.reader, self._announce)
            exported, graphs = self._write_graphs(choice.operators(reference), staging.folder)
            self._write_golden(exported, staging.folder)  # before the checks that take minutes: there may be none
            evidence = self._evidence(reference, exported, tests, scored)
        (staging.folder / TOKENIZER).write_bytes(self.saved.tokenizer.model)
        bundle = staging.seal(
            assemble_bundle(staging.folder, self.options, self.saved, self.network, self.pair, self.limits, graphs),
            evidence,
            about,
        )
        if behaviour is None:
            return bundle
        self._announce("behaviour")
        found = behaviour.measure(bundle, self._announce)
        if not self.options.accept_worse:
            check_not_worse(self.options.out, found)
        return staging.seal(bundle, {**evidence, "behaviour": found}, about)

    def _behaviour(self) -> Behaviour | None:
        options = self.options
        return Behaviour.read(options.behaviour, self.pair, options.behaviour_overlap) if options.behaviour else None

    def _about(self) -> str:
        return "" if self.options.about is None else "\n".join(read_lines(self.options.about)).strip()

    def _write_graphs(self, operators: Operators, folder: Path) -> tuple[GraphTranslator, Graphs]:
        graphs = build_graphs(operators, self.limits)
        models = {ENCODER: graphs.encoder, DECODER: graphs.decoder, EXPLAIN: graphs.explain}
        models |= {KEEP: graphs.keep, PLACE: graphs.place, LEAP: multi_step_graph(graphs.decoder, graphs.state)}
        for name, model in models.items():
            (folder / name).write_bytes(model.SerializeToString(deterministic=True))
        (folder / WEIGHTS).write_bytes(graphs.weights)
        decoder = GraphDecoder(folder, graphs.state, self.limits)
        return GraphTranslator(decoder, self.saved.tokenizer, self.limits.max_new_tokens), graphs

    def _write_golden(self, exported: GraphTranslator, folder: Path) -> None:
        assert self.options.golden is not None, "checked before"
        usable = self.reader.read_sources(self.options.golden)
        chosen = choose_golden(exported, usable, GOLDEN_COUNT, GOLDEN_GAP)
        if not chosen:
            raise ExportError(
                f"of {len(usable)} sentences in {self.options.golden} none comes out whole, without repetition "
                "and without a close choice: give more and shorter ones, or train the model longer"
            )
        lines = [json.dumps(asdict(self._golden(found)), ensure_ascii=False) + "\n" for found in chosen]
        (folder / GOLDEN).write_text("".join(lines), "utf-8")

    def _golden(self, found: GoldenTrace) -> Golden:
        hypothesis = found.trace.hypothesis()
        return Golden(
            source=self.pair.source,
            target=self.pair.target,
            text=found.text,
            translation=self.saved.tokenizer.decode(hypothesis.ids),
            source_ids=tuple(found.source_ids),
            target_ids=tuple(hypothesis.ids),
            log_probs=tuple(hypothesis.log_probs),
        )

    def _evidence(
        self, reference: GraphTranslator, exported: GraphTranslator, tests: list[Test], scored: list[ScoredSentences]
    ) -> dict[str, Any]:
        sources = [ids for _, of_test in tests for ids in of_test]
        self._announce("torch against ONNX Runtime")
        parity = self._parity(reference, sources)
        self._announce("quality")
        quality = verify_quality(reference, exported, tests, self.options.max_loss)
        self._announce("alone against in a crowd")
        promised = self.options.precision == "int8"
        invariance = verify_invariance(exported, sources[: self.options.invariance_sentences], promised)
        evidence = {"parity": parity, "quality": quality, "invariance": invariance}
        if scored:
            self._announce("scores")
            evidence["scores"] = [sentences.measure(exported) for sentences in scored]
        return evidence

    def _parity(self, reference: GraphTranslator, sources: list[list[int]]) -> dict[str, Any]:
        count = self.options.parity_sentences
        if len(sources) < count:
            raise ExportError(f"the files of --verify have {len(sources)} usable sentences; parity needs {count}")
        return verify_parity(self.saved.network, reference, sources[:: len(sources) // count][:count])

    def _announce(self, step: str) -> None:
        self.console.print(f"  {step}", style="dim", markup=False, highlight=False, soft_wrap=True)
