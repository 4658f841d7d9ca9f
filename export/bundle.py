"""Write a bundle: `dragoman-export CHECKPOINT OUT --golden FILE --verify SRC REF [--precision int8] …`

Loads a saved model, builds its graphs, checks them and only then gives the bundle its name: everything is written to a
temporary directory beside OUT and renamed at the end, so that a bundle that failed, or was interrupted, never exists.
"""

import argparse
import hashlib
import json
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from dragoman.export.calibrate import observe
from dragoman.export.card import model_card
from dragoman.export.decoding import GraphDecoder
from dragoman.export.graphs import Graphs, build_graphs
from dragoman.export.leap import leap_graph
from dragoman.export.network import Network, network_arrays
from dragoman.export.operators import FloatOperators, Int8Operators, Ints, Operators, Quantization
from dragoman.export.quantize import quantize
from dragoman.export.verify import (
    MAX_LOSS,
    GoldenTrace,
    ParallelText,
    Translator,
    VerificationError,
    choose_golden,
    verify_invariance,
    verify_parity,
    verify_quality,
)
from dragoman.export.vocabulary import output_ids
from dragoman.model.saved import SavedModel, SavedModelError, load_model
from dragoman.model.text import CorpusError, read_text
from dragoman.model.tokenizer import BOS_ID, EOS_ID, NUM_PLACEHOLDERS, PAD_ID, UNK_ID
from dragoman.service.bundles.manifest import (
    DECODER,
    ENCODER,
    EXPLAIN,
    GOLDEN,
    KEEP,
    LEAP,
    MANIFEST,
    MODEL_CARD,
    PLACE,
    WEIGHTS,
    Bundle,
    Golden,
    Limits,
    Pair,
    Precision,
    Rules,
    SpecialIds,
    TokenizerFiles,
    read_bundle,
    record_file,
)

TOKENIZER = "tokenizer.model"
MIN_PARITY_SENTENCES = 200
DEFAULT_LIMITS = Limits(max_source_tokens=256, max_new_tokens=256)
GOLDEN_GAP, GOLDEN_COUNT = 0.05, 32


class ExportError(Exception):
    """What was asked for cannot be exported; the message says what to change."""


@dataclass(frozen=True)
class Request:
    """What the command line asks for."""

    checkpoint: Path
    out: Path
    precision: Precision = "int8"
    golden: Path | None = None
    calibration: Path | None = None
    tests: tuple[tuple[Path, Path], ...] = ()
    target_texts: tuple[Path, ...] = ()  # that the model learned to write; empty: any token may come out
    sources: Path | None = None  # where the training text comes from, for the model card
    pair: str | None = None  # in a model of several, the one to export
    name: str | None = None
    version: str | None = None
    limits: Limits = DEFAULT_LIMITS
    default_beam_size: int = 1
    parity_sentences: int = MIN_PARITY_SENTENCES
    invariance_sentences: int = 1000
    calibration_sentences: int = 512
    max_loss: float = MAX_LOSS
    replace: bool = False


def export(request: Request, console: Console) -> Bundle:
    _check(request)
    saved = load_model(request.checkpoint)
    pair = _find_pair(saved, request.pair)
    with _renamed_when_done(request.out, request.replace) as directory:
        bundle = _Export(request, saved, pair, console).write(directory)
    console.print(f"[green]{request.out}[/]: {bundle.name} {bundle.version}, {bundle.precision}")
    return replace(bundle, path=request.out)


def _check(request: Request) -> None:
    missing = list(_missing(request))
    if missing:
        raise ExportError("\n".join(missing))
    if request.target_texts and request.precision != "int8":
        raise ExportError(
            f"--target-text is for int8 only, and this bundle is to be {request.precision}: leave --target-text out"
        )
    _refuse_what_is_there(request.out, request.replace)


def _refuse_what_is_there(out: Path, replace_old: bool) -> None:
    """What takes a name deletes what had it: nothing but a bundle may be lost so, and only when asked."""
    if out.exists() and not replace_old:
        raise ExportError(f"{out} exists; give another name, or --replace")
    if out.exists() and not (out / MANIFEST).is_file():
        raise ExportError(f"{out} is not a bundle (it has no {MANIFEST}), so --replace leaves it: give another name")


def _missing(request: Request) -> Iterator[str]:
    """All at once, so that nobody starts the command three times to learn of three options."""
    if not request.tests:
        yield (
            f"give at least one --verify SRC REF, {request.parity_sentences} sentences or more: "
            "a bundle carries the evidence of its own export"
        )
    if request.golden is None:
        yield "give --golden FILE with source sentences that servers replay when they load the bundle"
    if request.precision == "int8" and request.calibration is None:
        yield "give --calibration FILE with source sentences like those to be translated (not the test set)"


def _find_pair(saved: SavedModel, name: str | None) -> Pair:
    pairs = {f"{pair.source}-{pair.target}": pair for pair in _pairs(saved)}
    if name is None and len(pairs) == 1:
        return next(iter(pairs.values()))
    if name not in pairs:
        raise ExportError(f"this model translates {', '.join(pairs)}; name one with --pair: a bundle serves one")
    return pairs[name]


def _pairs(saved: SavedModel) -> tuple[Pair, ...]:
    return tuple(Pair(p["source"], p["target"], tuple(p["source_prefix_ids"])) for p in saved.pairs)


@contextmanager
def _renamed_when_done(out: Path, replace_old: bool) -> Iterator[Path]:
    """A temporary sibling that takes the name `out` if nothing was raised, and vanishes otherwise."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        directory = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    except OSError as error:
        raise ExportError(f"{out} cannot be written ({error}): give another name") from error
    try:
        yield directory
        directory.chmod(0o755)  # mkdtemp made it private
        _refuse_what_is_there(out, replace_old)  # once more: what is there now may have come in the meantime
        if replace_old and out.exists():
            old = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
            out.rename(old / "old")
            directory.rename(out)
            shutil.rmtree(old)
        else:
            directory.rename(out)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


class _Export:
    """One export on its way; the steps share a saved model and the sentences to check it with."""

    def __init__(self, request: Request, saved: SavedModel, pair: Pair, console: Console) -> None:
        self.request, self.saved, self.pair, self.console = request, saved, pair, console
        self.network = network_arrays(saved.network)
        longest = saved.config.max_positions
        self.limits = Limits(
            min(request.limits.max_source_tokens, longest), min(request.limits.max_new_tokens, longest)
        )

    def write(self, directory: Path) -> Bundle:
        tests = [self._read_test(source, reference) for source, reference in self.request.tests]
        sources = [ids for _, of_test in tests for ids in of_test]
        with tempfile.TemporaryDirectory() as scratch:
            reference = self._write_graphs(FloatOperators(self.network, "float32"), Path(scratch))[0]
            exported, graphs = self._write_graphs(self._operators(reference), directory)
            self._write_golden(exported, directory)  # before the checks that take minutes: it may find none
            self._say("torch against ONNX Runtime")
            parity = self._parity(reference, sources)
            self._say("quality")
            quality = verify_quality(reference, exported, tests, self.request.max_loss)
        self._say("alone against in a crowd")
        promised = self.request.precision == "int8"
        invariance = verify_invariance(exported, sources[: self.request.invariance_sentences], promised)
        (directory / TOKENIZER).write_bytes(self.saved.tokenizer.model)
        evidence = {"parity": parity, "quality": quality, "invariance": invariance}
        return self._write_manifest(directory, graphs, evidence)

    def _parity(self, reference: Translator, sources: list[list[int]]) -> dict[str, Any]:
        count = self.request.parity_sentences
        if len(sources) < count:
            raise ExportError(f"the files of --verify have {len(sources)} usable sentences; parity needs {count}")
        return verify_parity(self.saved.network, reference, sources[:: len(sources) // count][:count])

    def _operators(self, reference: Translator) -> Operators:
        match self.request.precision:
            case "fp32":
                return FloatOperators(self.network, "float32")
            case "fp16":
                return FloatOperators(self.network, "float16")
            case "int8":
                return Int8Operators(*self._quantized(reference), self.limits, self._output_ids())

    def _output_ids(self) -> Ints | None:
        if not self.request.target_texts:
            return None
        self._say("output vocabulary")
        texts = (text for path in self.request.target_texts for text in read_sentences(path, self.pair.target))
        return output_ids(self.saved.tokenizer, texts)

    def _quantized(self, reference: Translator) -> tuple[Network, Quantization]:
        assert self.request.calibration is not None, "checked before"
        self._say("calibration")
        texts = read_sentences(self.request.calibration, self.pair.source)
        sources = [ids for _, ids in self._usable(texts)][: self.request.calibration_sentences]
        if not sources:
            raise ExportError(f"{self.request.calibration} has no usable sentence to calibrate with")
        targets = [trace.hypothesis().ids for trace in reference.greedy(sources)]
        return quantize(self.network, observe(self.saved.network, zip(sources, targets, strict=True)))

    def _write_graphs(self, operators: Operators, directory: Path) -> tuple[Translator, Graphs]:
        graphs = build_graphs(operators, self.limits)
        models = {ENCODER: graphs.encoder, DECODER: graphs.decoder, EXPLAIN: graphs.explain}
        models |= {KEEP: graphs.keep, PLACE: graphs.place, LEAP: leap_graph(graphs.decoder)}
        for name, model in models.items():
            (directory / name).write_bytes(model.SerializeToString(deterministic=True))
        (directory / WEIGHTS).write_bytes(graphs.weights)
        decoder = GraphDecoder(directory, graphs.state, self.limits)
        return Translator(decoder, self.saved.tokenizer, self.limits.max_new_tokens), graphs

    def _write_golden(self, exported: Translator, directory: Path) -> None:
        assert self.request.golden is not None, "checked before"
        usable = self._usable(read_sentences(self.request.golden, self.pair.source))
        chosen = choose_golden(exported, usable, GOLDEN_COUNT, GOLDEN_GAP)
        if not chosen:
            raise ExportError(
                f"of {len(usable)} sentences in {self.request.golden} none comes out whole, without repetition "
                "and without a close choice: give more and shorter ones, or train the model longer"
            )
        lines = [json.dumps(asdict(self._golden(found)), ensure_ascii=False) + "\n" for found in chosen]
        (directory / GOLDEN).write_text("".join(lines), "utf-8")

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

    def _write_manifest(self, directory: Path, graphs: Graphs, evidence: Mapping[str, Any]) -> Bundle:
        # One pair, whatever else the model knows: scales, tokens that come out and evidence are of this one.
        pair, config = self.pair, self.saved.config
        bundle = Bundle(
            path=directory,
            name=self.request.name or f"{pair.source}-{pair.target}",
            version=self.request.version or _content_version(directory),
            precision=self.request.precision,
            pairs=(pair,),
            architecture=self.network.architecture,
            limits=self.limits,
            tokenizer=TokenizerFiles("sentencepiece", {"model": TOKENIZER}),
            special_ids=self._special_ids(),
            rules=Rules(default_beam_size=self.request.default_beam_size),
            state=graphs.state,
            files={},
            evidence=evidence,
            training={**self.saved.training, **self._sources(), "config": config.to_dict()},
        )
        (directory / MODEL_CARD).write_text(model_card(bundle), "utf-8")
        names = sorted(path.name for path in directory.iterdir())
        bundle = replace(bundle, files={name: record_file(directory / name) for name in names})
        (directory / MANIFEST).write_text(bundle.to_json(), "utf-8")
        return read_bundle(directory)

    def _sources(self) -> dict[str, str]:
        path = self.request.sources
        return {} if path is None else {"sources": "\n".join(_lines(path))}

    def _special_ids(self) -> SpecialIds:
        placeholders = tuple(self.saved.tokenizer.placeholder_id(number) for number in range(NUM_PLACEHOLDERS))
        return SpecialIds(pad=PAD_ID, unk=UNK_ID, bos=BOS_ID, eos=EOS_ID, placeholder_ids=placeholders)

    def _read_test(self, source: Path, reference: Path) -> tuple[ParallelText, list[list[int]]]:
        texts, references = read_sentences(source, self.pair.source), read_sentences(reference, self.pair.target)
        if len(texts) != len(references):
            raise ExportError(f"{source} has {len(texts)} sentences but {reference} has {len(references)}")
        both = [
            (found[0], wanted)
            for text, wanted in zip(texts, references, strict=True)
            if (found := self._usable([text]))
        ]
        name = f"{source.parent.name} {source.stem}".strip()
        test = ParallelText(name, [text for (text, _), _ in both], [wanted for _, wanted in both])
        return test, [ids for (_, ids), _ in both]

    def _usable(self, texts: Sequence[str]) -> list[tuple[str, list[int]]]:
        """The texts that fit, with their ids."""
        prefix = self.pair.source_prefix_ids
        encoded = [(text, [*prefix, *self.saved.tokenizer.encode(text), EOS_ID]) for text in texts if text.strip()]
        return [(text, ids) for text, ids in encoded if len(ids) <= self.limits.max_source_tokens]

    def _say(self, step: str) -> None:
        self.console.print(f"  {step}", style="dim")


def read_sentences(path: Path, language: str) -> list[str]:
    """One sentence a line; or, in a .tsv whose first line names languages, the column of this one."""
    lines = _lines(path)
    return _column(path, lines, language) if path.suffix == ".tsv" else lines


def _lines(path: Path) -> list[str]:
    try:
        text = read_text(path)
    except CorpusError as error:
        raise ExportError(str(error)) from error
    # As in training: a line ends at a line feed only, or a separator within a sentence would shift all that follow.
    return [line.rstrip("\r") for line in text.removesuffix("\n").split("\n")] if text else []


def _column(path: Path, lines: Sequence[str], language: str) -> list[str]:
    first, *rows = [line.split("\t") for line in lines] or [[""]]
    header = [name.strip() for name in first]  # as in training
    if language not in header:
        raise ExportError(
            f"{path} has no column named {language}: the first line of a .tsv must name the language of each column; "
            "write that line above the others, such as pt and en with a tab between (training reads it as well)"
        )
    for number, row in enumerate(rows, 2):
        if len(row) != len(header):
            raise ExportError(f"{path}, line {number}: {len(row)} columns, the first line has {len(header)}")
    return [row[header.index(language)] for row in rows]


def _content_version(directory: Path) -> str:
    """Twelve digits that change when anything that translates changes."""
    digest = hashlib.sha256()
    for name in (ENCODER, DECODER, LEAP, WEIGHTS, TOKENIZER):
        digest.update((directory / name).read_bytes())
    return digest.hexdigest()[:12]


def _at_least(minimum: int) -> Callable[[str], int]:
    """The type of an option: argparse puts the option's name before what is raised here."""

    def number(text: str) -> int:
        if not text.isascii() or not text.isdigit() or int(text) < minimum:
            raise argparse.ArgumentTypeError(f"{text} is no whole number of at least {minimum}")
        return int(text)

    return number


_positive = _at_least(1)


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """A polite kill ends the program as Ctrl-C does, so that what is half written is cleared away."""

    def end(number: int, _: object) -> None:
        sys.exit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def parse(arguments: Sequence[str] | None) -> Request:
    parser = argparse.ArgumentParser(prog="dragoman-export", description="Turn a saved model into a bundle.")
    parser.add_argument("checkpoint", type=Path, help="a saved model, .safetensors")
    parser.add_argument("out", type=Path, help="the bundle's directory")
    parser.add_argument("--precision", choices=["int8", "fp32", "fp16"], default="int8")
    parser.add_argument(
        "--calibration", type=Path, help="source sentences, such as those trained on, that int8 scales are chosen by"
    )
    parser.add_argument("--golden", type=Path, help="source sentences that servers replay when they load it")
    parser.add_argument(
        "--verify",
        nargs=2,
        type=Path,
        action="append",
        default=[],
        metavar=("SRC", "REF"),
        help=f"a test set, of {MIN_PARITY_SENTENCES} sentences or more in all",
    )
    parser.add_argument(
        "--target-text",
        type=Path,
        action="append",
        default=[],
        help="what an int8 model learned to write: no other token",
    )
    parser.add_argument(
        "--sources", type=Path, help="text for the model card: where the training text comes from, its licences"
    )
    parser.add_argument("--pair", help="in a model of several pairs, the one to export")
    parser.add_argument("--name", help="by default the pair, such as pt-en")
    parser.add_argument("--version", help="by default made of the content")
    parser.add_argument(
        "--max-source-tokens", type=_positive, default=DEFAULT_LIMITS.max_source_tokens, help="longer text is split"
    )
    parser.add_argument(
        "--max-new-tokens", type=_positive, default=DEFAULT_LIMITS.max_new_tokens, help="a translation has no more"
    )
    parser.add_argument("--default-beam-size", type=_positive, default=1, help="what it recommends; 1 is greedy")
    parser.add_argument(
        "--parity-sentences",
        type=_at_least(MIN_PARITY_SENTENCES),
        default=MIN_PARITY_SENTENCES,
        help="how many of --verify go through torch and ONNX Runtime both; this takes most of the time",
    )
    parser.add_argument("--replace", action="store_true", help="put the new bundle in the place of an old one")
    given = parser.parse_args(arguments)
    return Request(
        **{
            key: getattr(given, key)
            for key in ("checkpoint", "out", "precision", "calibration", "golden", "sources", "pair")
        },
        **{key: getattr(given, key) for key in ("name", "version", "default_beam_size", "parity_sentences", "replace")},
        tests=tuple((source, reference) for source, reference in given.verify),
        target_texts=tuple(given.target_text),
        limits=Limits(given.max_source_tokens, given.max_new_tokens),
    )


def main(arguments: Sequence[str] | None = None) -> None:
    torch.set_num_threads(1)  # sums in another order would be another bundle
    console = Console(stderr=True)
    try:
        with _ended_by_sigterm():
            export(parse(arguments), console)
    except (ExportError, SavedModelError, VerificationError) as error:
        console.print(str(error), style="red", markup=False, soft_wrap=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
