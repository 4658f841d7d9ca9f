"""What `bundle.json` says (format 2), and reading a bundle so that nothing unproven is served.

Standard library only, because the exporter writes what this file reads. A manifest of format 1 is read too: see
`format_1`. The graphs are run by `service.engine.runner`, text is read by `service.translation.tokenizer`, and
`service.catalog` chooses among bundles.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn

from dragoman.service.bundles.format_1 import as_format_2
from dragoman.service.bundles.sections import Section

FORMAT = 2
MANIFEST = "bundle.json"
ENCODER, DECODER, EXPLAIN, WEIGHTS = "encoder.onnx", "decoder.onnx", "explain.onnx", "weights.bin"
LEAP = "leap.onnx"  # the multi-step graph: some greedy steps of the decoder in one run
KEEP, PLACE = "keep.onnx", "place.onnx"  # gather and fill the rows of state that lives on a device
GOLDEN, MODEL_CARD = "golden.jsonl", "MODEL_CARD.md"
REQUIRED_FILES = (ENCODER, DECODER, WEIGHTS, GOLDEN)

Precision = Literal["int8", "fp32", "fp16"]
TokenizerKind = Literal["sentencepiece", "marian"]
Normalization = Literal["gnmt", "length", "length_without_end", "none"]
StopRule = Literal["count", "bound", "current"]  # bound: at the limit's length; current: at the present one
StateKind = Literal["encoded", "grows", "replaced"]

# kind of tokenizer -> the roles that its files may have: one for both sides, or one for each
_TOKENIZER_ROLES = {
    "sentencepiece": ({"model"}, {"source", "target"}),
    "marian": ({"source", "target", "vocabulary"}, {"source", "target", "source_vocabulary", "target_vocabulary"}),
}


class BundleError(Exception):
    """A bundle that must not be served; the message is one sentence that says what is wrong and what to do."""


@dataclass(frozen=True)
class Pair:
    source: str
    target: str
    source_prefix_ids: tuple[int, ...] = ()  # put before every source: the target-language tag of a multilingual model


@dataclass(frozen=True)
class Architecture:
    vocab_size: int
    d_model: int
    d_ff: int
    num_heads: int
    encoder_layers: int
    decoder_layers: int
    norm: str
    positions: str
    max_positions: int
    share_layers: bool
    activation: str = "relu"  # between the two halves of a feed-forward layer: relu or swish
    decoder: str = "attention"  # how the decoder looks at its own tokens: attention, or a recurrent cell (ssru)


@dataclass(frozen=True)
class Limits:
    max_source_tokens: int  # with prefix and end of sentence
    max_new_tokens: int  # with end of sentence


@dataclass(frozen=True)
class SpecialIds:
    pad: int
    unk: int
    bos: int
    eos: int
    placeholder_ids: tuple[int, ...]  # none: the model was not taught placeholders


@dataclass(frozen=True)
class TokenizerFiles:
    """The files of the tokenizer by their role: shared by both sides, or one for each side.

    A `sentencepiece` tokenizer has `model`, or `source` and `target`. A `marian` tokenizer has `source` and `target`
    and numbers their pieces by `vocabulary`, or by `source_vocabulary` and `target_vocabulary`.
    """

    kind: TokenizerKind
    files: Mapping[str, str]  # role -> file name
    source_special_ids: SpecialIds | None = None  # where they differ from those of the target side
    source_end: bool = True  # whether a source ends with eos; some models were taught without it


@dataclass(frozen=True)
class Rules:
    """How this model is decoded; a request may choose its beam size, but not these rules."""

    normalization: Normalization = "gnmt"
    alpha: float = 0.6
    stop_rule: StopRule = "count"
    repetition_guard: bool = True
    forced_end: bool = False  # the last token that max_new_tokens allows is eos, as in some frameworks
    default_beam_size: int = 1


@dataclass(frozen=True)
class StateTensor:
    """One array that lives between decoder steps: the decoder's input `name`, and after the step its output `output`.

    `encoded`: written once, when a row joins, from the encoder's output `encoder_output` [batch, source, width]. With
    "source" in its shape it takes every source position, without it the last one.
    `grows`: each step writes one position of the "target" dimension, in place; a row begins with no position.
    `replaced`: each step reads the whole tensor and writes a new one; a row begins with zeros.
    """

    name: str
    kind: StateKind
    dtype: Literal["float32", "float16"]
    shape: tuple[int | str, ...]  # the first dimension is "rows"; "source" and "target" are the limits
    output: str | None = None  # an `encoded` tensor may have none
    encoder_output: str | None = None


@dataclass(frozen=True)
class FileRecord:
    sha256: str
    bytes: int


@dataclass(frozen=True)
class Golden:
    """A sentence whose greedy translation must be the same, token for token, wherever the bundle is loaded."""

    source: str
    target: str
    text: str
    translation: str
    source_ids: tuple[int, ...]
    target_ids: tuple[int, ...]  # generated tokens, without the end of sentence
    log_probs: tuple[float, ...]  # one per generated token, with the end of sentence


@dataclass(frozen=True)
class Bundle:
    path: Path
    name: str
    version: str
    precision: Precision
    pairs: tuple[Pair, ...]
    architecture: Architecture
    limits: Limits
    tokenizer: TokenizerFiles
    special_ids: SpecialIds  # of the target side, and of the source side unless the tokenizer says otherwise
    rules: Rules
    state: tuple[StateTensor, ...]
    files: Mapping[str, FileRecord]
    evidence: Mapping[str, Any]
    training: Mapping[str, Any]

    @property
    def source_special_ids(self) -> SpecialIds:
        return self.tokenizer.source_special_ids or self.special_ids

    @property
    def source_end_ids(self) -> tuple[int, ...]:
        """What follows every source."""
        return (self.source_special_ids.eos,) if self.tokenizer.source_end else ()

    def file(self, name: str) -> Path:
        return self.path / name

    def to_json(self) -> str:
        record = {"format": FORMAT, **asdict(self)}
        del record["path"]
        return json.dumps(record, indent=2, ensure_ascii=False) + "\n"


def read_bundle(path: Path | str, check_hashes: bool = True) -> Bundle:
    """Read and check a bundle; raise BundleError when it is not exactly what its manifest says."""
    path = Path(path)
    bundle = _parse(path, _read_manifest(path))
    missing = [name for name in (*REQUIRED_FILES, *bundle.tokenizer.files.values()) if name not in bundle.files]
    if missing:
        raise BundleError(f"bundle {path} does not list {missing[0]} in {MANIFEST}: export it again")
    for name, record in bundle.files.items():
        _check_file(path, name, record, check_hashes)
    return bundle


def read_golden(bundle: Bundle) -> tuple[Golden, ...]:
    lines = bundle.file(GOLDEN).read_text("utf-8").splitlines()
    try:
        return tuple(_golden(json.loads(line)) for line in lines if line.strip())
    except (ValueError, TypeError, KeyError) as error:
        raise BundleError(f"bundle {bundle.path} has an unreadable {GOLDEN} ({error}): export it again") from error


def record_file(path: Path) -> FileRecord:
    with path.open("rb") as file:
        return FileRecord(hashlib.file_digest(file, "sha256").hexdigest(), path.stat().st_size)


def _check_file(directory: Path, name: str, record: FileRecord, check_hash: bool) -> None:
    path = directory / name
    if not path.is_file():
        raise BundleError(f"bundle {directory} lacks {name}: copy the whole directory again")
    if path.stat().st_size != record.bytes:
        raise BundleError(
            f"bundle {directory} has {path.stat().st_size} bytes in {name} where {MANIFEST} says {record.bytes}: "
            "copy the whole directory again"
        )
    if check_hash and record_file(path).sha256 != record.sha256:
        raise BundleError(
            f"bundle {directory} has a {name} whose SHA-256 differs from {MANIFEST}: copy the whole directory again"
        )


def _read_manifest(path: Path) -> Section:
    def fail(problem: str) -> NoReturn:
        raise BundleError(f"bundle {path} {problem}")

    try:
        record = json.loads((path / MANIFEST).read_text("utf-8"))
    except FileNotFoundError:
        fail(f"has no {MANIFEST}: give the directory that dragoman-export wrote")
    except (OSError, ValueError) as error:
        fail(f"has an unreadable {MANIFEST} ({error}): copy the whole directory again")
    section = Section(record, MANIFEST, fail)
    found = section.get("format", int)
    if found not in (1, FORMAT):
        todo = "upgrade the server" if found > FORMAT else "export it again"
        fail(f"has format {found} but this server reads formats 1 and {FORMAT}: {todo}")
    return section if found == FORMAT else Section(as_format_2(section.record), MANIFEST, fail)


def _parse(path: Path, top: Section) -> Bundle:
    bundle = Bundle(
        path=path,
        name=top.get("name", str),
        version=top.get("version", str),
        precision=top.one_of("precision", "int8", "fp32", "fp16"),
        pairs=tuple(map(_pair, top.sections("pairs"))),
        architecture=top.section("architecture").flat(Architecture),
        limits=_limits(top.section("limits")),
        tokenizer=_tokenizer(top.section("tokenizer")),
        special_ids=_special_ids(top.section("special_ids")),
        rules=_rules(top.section("rules")),
        state=tuple(map(_state_tensor, top.sections("state"))),
        files=_files(top.section("files")),
        evidence=top.get("evidence", dict),
        training=top.get("training", dict),
    )
    if not bundle.pairs:
        top.fail("serves no language pair: export it again")
    strange = [i for i in bundle.special_ids.placeholder_ids if not 0 <= i < bundle.architecture.vocab_size]
    if strange:
        top.fail(f"has the placeholder id {strange[0]}, which is not in its vocabulary: export it again")
    return bundle


def _limits(section: Section) -> Limits:
    return Limits(section.positive("max_source_tokens"), section.positive("max_new_tokens"))


def _pair(section: Section) -> Pair:
    return Pair(section.get("source", str), section.get("target", str), section.integers("source_prefix_ids"))


def _tokenizer(section: Section) -> TokenizerFiles:
    kind, files = section.one_of("kind", *_TOKENIZER_ROLES), section.section("files")
    if set(files.record) not in _TOKENIZER_ROLES[kind]:
        needed = ", or ".join(" and ".join(sorted(roles)) for roles in _TOKENIZER_ROLES[kind])
        found = " and ".join(sorted(files.record)) or "none"
        section.fail(f"names the tokenizer files {found}, but the kind {kind} needs {needed}: export it again")
    own = None if section.record.get("source_special_ids") is None else section.section("source_special_ids")
    return TokenizerFiles(
        kind=kind,
        files={role: files.get(role, str) for role in files.record},
        source_special_ids=None if own is None else _special_ids(own),
        source_end=section.optional("source_end", bool) is not False,
    )


def _special_ids(section: Section) -> SpecialIds:
    return SpecialIds(
        pad=section.get("pad", int),
        unk=section.get("unk", int),
        bos=section.get("bos", int),
        eos=section.get("eos", int),
        placeholder_ids=section.integers("placeholder_ids"),
    )


def _rules(section: Section) -> Rules:
    return Rules(
        normalization=section.one_of("normalization", "gnmt", "length", "length_without_end", "none"),
        alpha=_alpha(section),
        stop_rule=section.one_of("stop_rule", "count", "bound", "current"),
        repetition_guard=section.get("repetition_guard", bool),
        forced_end=section.get("forced_end", bool),
        default_beam_size=section.positive("default_beam_size"),
    )


def _alpha(section: Section) -> float:
    value = section.get("alpha", float)
    if not 0 <= value < math.inf:  # NaN is not, either
        section.fail(
            f"has the alpha {value} in its {section.name}, which must be 0 or more, and finite: export it again"
        )
    return value


def _state_tensor(section: Section) -> StateTensor:
    tensor = StateTensor(
        name=section.get("name", str),
        kind=section.one_of("kind", "encoded", "grows", "replaced"),
        dtype=section.one_of("dtype", "float32", "float16"),
        shape=tuple(section.get("shape", list)),
        output=section.optional("output", str),
        encoder_output=section.optional("encoder_output", str),
    )
    problem = _problem_of(tensor)
    if problem:
        section.fail(f"has the state tensor {tensor.name}, {problem}: export it again")
    return tensor


def _problem_of(tensor: StateTensor) -> str | None:
    """Why a state tensor is not what its kind says."""
    rows, *others = tensor.shape or ("",)
    named = [size for size in others if type(size) is not int or size < 1]
    allowed = {"encoded": (["source"], []), "grows": (["target"],), "replaced": ([],)}[tensor.kind]
    if rows != "rows" or named not in allowed:
        return f"whose shape {list(tensor.shape)} does not suit the kind {tensor.kind}"
    if (tensor.encoder_output is None) == (tensor.kind == "encoded"):
        return f"which {'lacks' if tensor.encoder_output is None else 'must not have'} an encoder_output"
    if tensor.output is None and tensor.kind != "encoded":
        return "which lacks an output"
    return None


def _files(section: Section) -> dict[str, FileRecord]:
    for name in section.record:
        # A manifest may come from anywhere; its names must not reach outside its directory.
        if name in ("", ".", "..") or "/" in name or "\\" in name or "\0" in name or ":" in name:
            section.fail(f"names the file {name!r}, which is not a plain file name: do not use this bundle")
    return {name: section.section(name).flat(FileRecord) for name in section.record}


def _golden(record: dict[str, Any]) -> Golden:
    return Golden(
        source=record["source"],
        target=record["target"],
        text=record["text"],
        translation=record["translation"],
        source_ids=tuple(record["source_ids"]),
        target_ids=tuple(record["target_ids"]),
        log_probs=tuple(record["log_probs"]),
    )
