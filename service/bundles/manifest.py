"""Bundle format 1: what `bundle.json` says, and reading a bundle so that nothing unproven is served.

Standard library only, because the exporter writes what this file reads. Running the graphs is left to
`service.engine.runner`, text to the tokenizer, and the choice of bundles to `service.catalog.catalog`.
"""

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeVar, cast

FORMAT = 1
MANIFEST = "bundle.json"
ENCODER, DECODER, EXPLAIN, WEIGHTS = "encoder.onnx", "decoder.onnx", "explain.onnx", "weights.bin"
LEAP = "leap.onnx"  # some greedy steps of the decoder in one run
KEEP, PLACE = "keep.onnx", "place.onnx"  # move and fill rows where the state lives on a device
GOLDEN, MODEL_CARD = "golden.jsonl", "MODEL_CARD.md"
REQUIRED_FILES = (ENCODER, DECODER, WEIGHTS, GOLDEN)

Precision = Literal["int8", "fp32", "fp16"]
TokenizerKind = Literal["sentencepiece", "marian"]
Normalization = Literal["gnmt", "length", "none"]
StopRule = Literal["count", "bound"]
StateKind = Literal["self", "cross", "last"]
T = TypeVar("T")


class BundleError(Exception):
    """A bundle that must not be served; the message is one sentence that says what to do."""


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


@dataclass(frozen=True)
class Limits:
    max_source_tokens: int  # with prefix and end of sentence
    max_new_tokens: int  # with end of sentence


@dataclass(frozen=True)
class TokenizerFiles:
    kind: TokenizerKind
    files: Mapping[str, str]  # role -> file name: {"model": …}, or {"source": …, "target": …, "vocabulary": …}


@dataclass(frozen=True)
class SpecialIds:
    pad: int
    unk: int
    bos: int
    eos: int
    placeholder_ids: tuple[int, ...]


@dataclass(frozen=True)
class Rules:
    """How this model wants to be searched; a request may choose its beam but not these."""

    normalization: Normalization = "gnmt"
    alpha: float = 0.6
    stop_rule: StopRule = "count"
    repetition_guard: bool = True
    forced_end: bool = False
    default_beam_size: int = 1


@dataclass(frozen=True)
class StateTensor:
    """One array that lives between decoder steps: input `name`, and output `output` bound to the same memory."""

    name: str
    kind: StateKind  # self: grows by one slot a step; cross: written by the encoder; last: its last source position
    dtype: Literal["float32", "float16"]
    shape: tuple[int | str, ...]  # the first dimension is "rows"; "target" and "source" are the limits
    output: str | None = None


@dataclass(frozen=True)
class FileRecord:
    sha256: str
    bytes: int


@dataclass(frozen=True)
class Golden:
    """A sentence whose greedy translation must come out again, token for token, wherever the bundle is loaded."""

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
    special_ids: SpecialIds
    rules: Rules
    state: tuple[StateTensor, ...]
    files: Mapping[str, FileRecord]
    evidence: Mapping[str, Any]
    training: Mapping[str, Any]

    def file(self, name: str) -> Path:
        return self.path / name

    def to_json(self) -> str:
        record = {"format": FORMAT, **asdict(self)}
        del record["path"]
        return json.dumps(record, indent=2, ensure_ascii=False) + "\n"


def read_bundle(path: Path | str, check_hashes: bool = True) -> Bundle:
    """Read and check a bundle; raise BundleError with one sentence when it is not exactly what its manifest says."""
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


def _read_manifest(path: Path) -> "_Section":
    def fail(problem: str) -> NoReturn:
        raise BundleError(f"bundle {path} {problem}")

    try:
        record = json.loads((path / MANIFEST).read_text("utf-8"))
    except FileNotFoundError:
        fail(f"has no {MANIFEST}: give the directory that dragoman-export wrote")
    except (OSError, ValueError) as error:
        fail(f"has an unreadable {MANIFEST} ({error}): copy the whole directory again")
    section = _Section(record, MANIFEST, fail)
    found = section.get("format", int)
    if found > FORMAT:
        fail(f"has format {found} but this server reads format {FORMAT}: upgrade the server")
    if found != FORMAT:
        fail(f"has format {found} but this server reads format {FORMAT}: export it again")
    return section


class _Section:
    """One JSON object, read field by field with the types we expect."""

    def __init__(self, record: object, where: str, fail: Callable[[str], NoReturn]) -> None:
        if not isinstance(record, dict):
            fail(f"has a {where} that is not a JSON object: export it again")
        self.record, self.where, self.fail = cast(dict[str, Any], record), where, fail

    def get(self, key: str, kind: type[T]) -> T:
        value = self.record.get(key)
        if kind is float and type(value) is int:
            value = float(value)
        # bool is an int to isinstance; a manifest that says true for a number is wrong
        if type(value) is not kind:
            self.fail(f"has no usable {key!r} in its {self.where} (expected {kind.__name__}): export it again")
        return value

    def one_of(self, key: str, *choices: str) -> Any:
        value = self.get(key, str)
        if value not in choices:
            self.fail(f"has the unknown {key} {value!r} in its {self.where}: upgrade the server")
        return value

    def section(self, key: str) -> "_Section":
        return _Section(self.get(key, dict), key, self.fail)

    def sections(self, key: str) -> "list[_Section]":
        return [_Section(item, key, self.fail) for item in self.get(key, list)]

    def integers(self, key: str) -> tuple[int, ...]:
        values = self.get(key, list)
        if any(type(value) is not int for value in values):
            self.fail(f"has something other than integers in {key!r} of its {self.where}: export it again")
        return tuple(values)

    def positive(self, key: str) -> int:
        value = self.get(key, int)
        if value < 1:
            self.fail(f"has {value} for {key!r} in its {self.where}, where at least 1 is needed: export it again")
        return value

    def flat(self, cls: type[T]) -> T:
        """A dataclass of plain fields only."""
        return cls(**{field.name: self.get(field.name, cast(type, field.type)) for field in fields(cast(Any, cls))})


def _parse(path: Path, top: _Section) -> Bundle:
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
        top.fail(f"has the placeholder id {strange[0]}, which its vocabulary lacks: export it again")
    return bundle


def _limits(section: _Section) -> Limits:
    return Limits(section.positive("max_source_tokens"), section.positive("max_new_tokens"))


def _pair(section: _Section) -> Pair:
    return Pair(section.get("source", str), section.get("target", str), section.integers("source_prefix_ids"))


def _tokenizer(section: _Section) -> TokenizerFiles:
    files = section.section("files")
    return TokenizerFiles(
        kind=section.one_of("kind", "sentencepiece", "marian"),
        files={role: files.get(role, str) for role in files.record},
    )


def _special_ids(section: _Section) -> SpecialIds:
    return SpecialIds(
        pad=section.get("pad", int),
        unk=section.get("unk", int),
        bos=section.get("bos", int),
        eos=section.get("eos", int),
        placeholder_ids=section.integers("placeholder_ids"),
    )


def _rules(section: _Section) -> Rules:
    return Rules(
        normalization=section.one_of("normalization", "gnmt", "length", "none"),
        alpha=_alpha(section),
        stop_rule=section.one_of("stop_rule", "count", "bound"),
        repetition_guard=section.get("repetition_guard", bool),
        forced_end=section.get("forced_end", bool),
        default_beam_size=section.positive("default_beam_size"),
    )


def _alpha(section: _Section) -> float:
    value = section.get("alpha", float)
    if not 0 <= value < math.inf:  # NaN is not, either
        section.fail(
            f"has the alpha {value} in its {section.where}, which must be 0 or more, and finite: export it again"
        )
    return value


def _state_tensor(section: _Section) -> StateTensor:
    return StateTensor(
        name=section.get("name", str),
        kind=section.one_of("kind", "self", "cross", "last"),
        dtype=section.one_of("dtype", "float32", "float16"),
        shape=tuple(section.get("shape", list)),
        output=section.get("output", str) if section.record.get("output") is not None else None,
    )


def _files(section: _Section) -> dict[str, FileRecord]:
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
