"""CTranslate2 model directories and `.argosmodel` packages: the variables of model.bin as our arrays."""

import json
import re
import struct
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dragoman.export import ExportError
from dragoman.export.importers.imported import ImportedModel, limits_for, read_bytes, read_json, with_never
from dragoman.export.network import NEVER, Floats, Network
from dragoman.service.bundles.manifest import Architecture, Pair, Rules, SpecialIds, TokenizerFiles

_DTYPES = ("<f4", "<i1", "<i2", "<i4", "<f2", "bfloat16")
_ACTIVATIONS = {0: "relu", 1: "gelu (tanh)", 2: "swish", 3: "gelu", 4: "gelu (sigmoid)", 5: "tanh", 6: "sigmoid"}
_VERSIONS = (4, 5, 6)
# Facts that do not change what the network computes.
_IGNORED = re.compile(
    r".*/(alignment_layer|alignment_heads|embeddings_merge|alibi_use_positive_positions)|num_source_embeddings|"
    r"(unk|bos|eos)_token|with_\w+|user_decoder_start_tokens"
)
_MUST_BE_OFF = ("alibi", "scale_alibi", "multi_query_attention")
_LANGUAGE_TOKEN = re.compile(r"__[a-z]{2,3}__|[a-z]{3}_[A-Z][a-z]{3}|[a-z]{2}_[A-Z]{2}")
_SENTENCEPIECE = ("sentencepiece.model", "spm.model", "sentencepiece.bpe.model")

Array = npt.NDArray[Any]


def read_ctranslate2(path: Path, pairs: Sequence[str] = (), sentencepiece: Sequence[Path] = ()) -> ImportedModel:
    """A directory, or an Argos package; of a directory the pair and the SentencePiece models may have to be given."""
    if path.is_dir() and not (path / "metadata.json").is_file():
        return _read_directory(path, _one_pair(path, pairs), _spm_files(path, sentencepiece))
    with _unpacked(path) as folder:
        about = read_json(folder / "metadata.json", "the metadata of an Argos package")
        if about.get("target_prefix"):
            raise ExportError(f"{path} needs the target prefix {about['target_prefix']}, which bundles do not have")
        pair = Pair(str(about.get("from_code", "")), str(about.get("to_code", "")))
        if not pair.source or not pair.target:
            raise ExportError(
                f"{path} does not name its languages: from_code and to_code were expected in metadata.json"
            )
        return _read_directory(folder / "model", pair, _spm_files(folder, sentencepiece))


@contextmanager
def _unpacked(path: Path) -> Iterator[Path]:
    if path.is_dir():
        yield path
        return
    with tempfile.TemporaryDirectory() as scratch:
        try:
            with zipfile.ZipFile(path) as archive:
                archive.extractall(scratch)  # zipfile keeps names inside the folder
        except (OSError, zipfile.BadZipFile) as error:
            raise ExportError(
                f"{path} is neither a CTranslate2 directory nor an .argosmodel package ({error})"
            ) from error
        found = sorted(Path(scratch).glob("*/metadata.json"))
        if not found:
            raise ExportError(f"{path} has no metadata.json in a folder: an .argosmodel package was expected")
        yield found[0].parent


def _one_pair(path: Path, pairs: Sequence[str]) -> Pair:
    source, _, target = pairs[0].partition("-") if len(pairs) == 1 else ("", "", "")
    if not source or not target:
        raise ExportError(f"{path} does not say which languages it translates: give one --pair, such as --pair zh-en")
    return Pair(source, target)


def _spm_files(folder: Path, given: Sequence[Path]) -> dict[str, bytes]:
    """Of source and target; one file may serve both."""
    both = [folder / name for name in ("source.spm", "target.spm")]
    shared = [folder / name for name in _SENTENCEPIECE if (folder / name).is_file()]
    chosen = list(given) or (both if both[0].is_file() else shared[:1])
    if not chosen:
        raise ExportError(f"{folder} has no SentencePiece model such as {_SENTENCEPIECE[0]}: give --sentencepiece FILE")
    models = [read_bytes(path, "a SentencePiece model") for path in (chosen[0], chosen[-1])]
    return {"source.spm": models[0], "target.spm": models[1]}


def _read_directory(folder: Path, pair: Pair, models: Mapping[str, bytes]) -> ImportedModel:
    file = ModelFile(folder / "model.bin")
    config = _config(folder, file)
    source, target = _vocabularies(folder, config)
    zero_start = bool(file.flag("decoder/start_from_zero_embedding", False))
    network, start = _network(file, config, source, target, zero_start)
    ends = zero_start or bool(config["add_source_eos"])  # of a Marian model it is left to the caller of CTranslate2
    prefix = (source[config["bos_token"]],) if config["add_source_bos"] else ()
    unk, eos = config["unk_token"], config["eos_token"]
    special = SpecialIds(pad=start, unk=target[unk], bos=start, eos=target[eos], placeholder_ids=())
    of_source = SpecialIds(
        pad=source[unk], unk=source[unk], bos=source[unk], eos=source.get(eos, 0), placeholder_ids=()
    )
    roles = ("source_vocabulary", "target_vocabulary")
    files = {"source": "source.spm", "target": "target.spm", **{role: f"{role}.json" for role in roles}}
    numbers = {"source_vocabulary.json": source, "target_vocabulary.json": target}
    return ImportedModel(
        network=network,
        pairs=(Pair(pair.source, pair.target, prefix),),
        tokenizer=TokenizerFiles("marian", files, source_special_ids=of_source, source_end=ends),
        files={**models, **{name: json.dumps(each, ensure_ascii=False).encode() for name, each in numbers.items()}},
        special_ids=special,
        rules=Rules("length_without_end", 1.0, "count", repetition_guard=False, default_beam_size=2),
        limits=limits_for(len(network.arrays["positions.weight"])),
        origin={"imported_from": "a CTranslate2 model", "config": config},
    )


class ModelFile:
    """The variables of a model.bin, dequantized when they are asked for; it knows which were never asked for."""

    def __init__(self, path: Path) -> None:
        self.path, self._asked = path, set[str]()
        self._bytes, self._at = memoryview(read_bytes(path, "the variables of a CTranslate2 model")), 0
        try:
            self.version = self._number("I")
            if self.version not in _VERSIONS:
                raise ExportError(
                    f"{path} has the binary version {self.version}; 4, 5 and 6 of CTranslate2 can be read"
                )
            self._check_spec(self._string(), self._number("I"))
            self._variables = dict(self._variable() for _ in range(self._number("I")))
            self._aliases = {self._string(): self._string() for _ in range(self._number("I"))}
        except (struct.error, ValueError, UnicodeDecodeError) as error:
            raise ExportError(f"{path} ends too early, or is no model.bin of CTranslate2: copy it again") from error

    def _check_spec(self, spec: str, revision: int) -> None:
        if spec != "TransformerSpec":
            raise ExportError(f"{self.path} holds a {spec}; only the encoder-decoder TransformerSpec can be imported")
        if not 5 <= revision <= 7:
            raise ExportError(f"{self.path} has revision {revision} of its layout; 5 to 7 can be read")

    def _number(self, kind: str) -> int:
        size = struct.calcsize(kind)
        (value,) = struct.unpack("<" + kind, self._take(size))
        return int(value)

    def _take(self, size: int) -> memoryview:
        if self._at + size > len(self._bytes):
            raise ValueError("the end of the file")
        self._at += size
        return self._bytes[self._at - size : self._at]

    def _string(self) -> str:
        return bytes(self._take(self._number("H"))).rstrip(b"\0").decode("utf-8")

    def _variable(self) -> tuple[str, Array]:
        name, rank = self._string(), self._number("B")
        shape = [self._number("I") for _ in range(rank)]
        dtype, size = self._number("B"), self._number("I")
        if dtype >= len(_DTYPES):
            raise ValueError("an unknown type")
        data = self._take(size)
        if _DTYPES[dtype] == "bfloat16":
            wide = np.frombuffer(data, "<u2").astype(np.uint32) << np.uint32(16)
            return name, wide.view(np.float32).reshape(shape)
        return name, np.frombuffer(data, _DTYPES[dtype]).reshape(shape)

    def has(self, name: str) -> bool:
        return name in self._variables or name in self._aliases

    def raw(self, name: str) -> Array:
        self._asked.add(name)
        real = self._aliases.get(name, name)
        if real not in self._variables:
            raise ExportError(
                f"{self.path} has no variable {name}: a Transformer with encoder and decoder was expected"
            )
        return self._variables[real]

    def flag(self, name: str, default: float) -> float:
        return float(self.raw(name).reshape(-1)[0]) if self.has(name) else default

    def floats(self, name: str) -> Floats:
        """int8 has a scale for every row, int16 one for all."""
        array, real = self.raw(name), self._aliases.get(name, name)
        self._asked |= {f"{name}_scale", f"{real}_scale"}
        if array.dtype.kind == "f":
            return np.asarray(array, np.float32)
        scale = self._variables.get(f"{real}_scale")
        if scale is None:
            raise ExportError(f"{self.path} has integers in {name} but no {name}_scale: copy it again")
        divisor = scale.astype(np.float32).reshape(-1, *([1] * (array.ndim - 1))) if scale.size > 1 else scale
        return np.asarray(array.astype(np.float32) / divisor, np.float32)

    def check_all_asked(self) -> None:
        """A variable that nothing asked for is a part that our network lacks."""
        for name in (*self._variables, *self._aliases):
            off = name.rpartition("/")[2] in _MUST_BE_OFF and not self.raw(name).any()
            if name not in self._asked and not off and not _IGNORED.fullmatch(name):
                raise ExportError(
                    f"{self.path} has {name}, a part that Dragoman's Transformer lacks: it cannot be imported"
                )


def _config(folder: Path, file: ModelFile) -> dict[str, Any]:
    path = folder / "config.json"
    config: dict[str, Any] = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    config |= {"add_source_bos": False, "add_source_eos": False, "decoder_start_token": "<s>"}
    if file.version >= 6 or path.is_file():
        config |= read_json(path, "the configuration of a CTranslate2 model")
    if file.version < 6:
        config["add_source_bos"] = bool(file.flag("with_source_bos", config["add_source_bos"]))
        config["add_source_eos"] = bool(file.flag("with_source_eos", config["add_source_eos"]))
        if file.flag("user_decoder_start_tokens", 0):
            config["decoder_start_token"] = None
        elif not file.flag("with_target_bos", 1):
            config["decoder_start_token"] = config["eos_token"]
    if config["decoder_start_token"] is None:
        raise ExportError(f"{path} leaves the start token to the caller, as mBART and NLLB do: they cannot be imported")
    return config


def _vocabularies(folder: Path, config: Mapping[str, Any]) -> tuple[dict[str, int], dict[str, int]]:
    shared = _vocabulary(folder, "shared_vocabulary", config)
    if shared is not None:
        return shared, shared
    source, target = (_vocabulary(folder, f"{side}_vocabulary", config) for side in ("source", "target"))
    if source is None or target is None:
        raise ExportError(
            f"{folder} has neither shared_vocabulary.json nor source_ and target_vocabulary.json (or .txt)"
        )
    return source, target


def _vocabulary(folder: Path, name: str, config: Mapping[str, Any]) -> dict[str, int] | None:
    path = folder / f"{name}.json"
    if path.is_file():
        tokens = read_json(path, "a list of tokens", list)
    elif path.with_suffix(".txt").is_file():
        path = path.with_suffix(".txt")
        tokens = read_bytes(path, "a list of tokens").decode("utf-8", "replace").removesuffix("\n").split("\n")
    else:
        return None
    languages = [token for token in tokens if isinstance(token, str) and _LANGUAGE_TOKEN.fullmatch(token)]
    if len(languages) > 10:
        raise ExportError(f"{path} has tokens such as {languages[0]}: M2M-100, NLLB and mBART cannot be imported")
    numbers: dict[str, int] = {}
    for number, token in enumerate(tokens):
        numbers.setdefault(str(token), number)
    numbers.setdefault(config["unk_token"], len(tokens))
    if config["eos_token"] not in numbers:
        raise ExportError(
            f"{path} lacks the token {config['eos_token']}, which config.json names as the end of sentence"
        )
    return numbers


def _network(
    file: ModelFile, config: Mapping[str, Any], source: Mapping[str, int], target: Mapping[str, int], zero_start: bool
) -> tuple[Network, int]:
    """The network, and the id of the token that the decoder starts with."""
    shape = _architecture(file)
    tables, start = _tables(file, shape, zero_start, target.get(config["decoder_start_token"], -1))
    _check_rows(file, tables, source, target)
    arrays = {**tables, "positions.weight": _positions(file, shape.d_model)}
    for side in ("encoder", "decoder"):
        for i in range(getattr(shape, f"{side}_layers")):
            arrays |= _layer(file, side, i)
        if shape.norm == "pre":
            arrays |= _norm(file, f"{side}/layer_norm", f"{side}.norm")
    scale = _scale(file, shape.d_model)
    file.check_all_asked()
    rows = len(arrays.get("embedding.weight", arrays.get("target_embedding.weight", ())))
    epsilon = config.get("layer_norm_epsilon")
    built = Architecture(**{**vars(shape), "vocab_size": rows, "max_positions": len(arrays["positions.weight"])})
    return Network(built, arrays, scale, 1e-5 if epsilon is None else float(epsilon)), start


def _architecture(file: ModelFile) -> Architecture:
    facts = [
        [
            file.flag(f"{side}/{name}", default)
            for name, default in (("num_heads", 8), ("pre_norm", 1), ("activation", 0))
        ]
        for side in ("encoder", "decoder")
    ]
    if facts[0] != facts[1]:
        raise ExportError(f"{file.path} has other heads, norms or activations in encoder and decoder: not supported")
    heads, pre_norm, activation = facts[0]
    name = _ACTIVATIONS.get(int(activation), "unknown")
    if name not in ("relu", "swish"):
        raise ExportError(f"{file.path} has the activation {name}; relu and swish can be imported")
    depths = [_depth(file, side) for side in ("encoder", "decoder")]
    d_model = file.raw("decoder/embeddings/weight").shape[1]
    d_ff = file.raw("encoder/layer_0/ffn/linear_0/weight").shape[0]
    norm = "pre" if pre_norm else "post"
    return Architecture(0, d_model, d_ff, int(heads), *depths, norm, "sinusoidal", 0, False, name)


def _depth(file: ModelFile, side: str) -> int:
    depth = 0
    while file.has(f"{side}/layer_{depth}/ffn/linear_0/weight"):
        depth += 1
    return depth


def _tables(file: ModelFile, shape: Architecture, zero_start: bool, start: int) -> tuple[dict[str, Floats], int]:
    source, target = file.floats("encoder/embeddings_0/weight"), file.floats("decoder/embeddings/weight")
    output = file.floats("decoder/projection/weight")
    bias = file.floats("decoder/projection/bias") if file.has("decoder/projection/bias") else None
    never: list[int] = []
    if zero_start:  # as in Marian, a row of zeros that never comes out
        start = len(target)
        never, zeros = [start], np.zeros((1, shape.d_model), np.float32)
        source, target, output = (np.concatenate([table, zeros]) for table in (source, target, output))
        bias = None if bias is None else np.append(bias, np.float32(0))
    if start < 0:
        raise ExportError(f"{file.path}: the vocabulary lacks the decoder's start token that config.json names")
    if np.array_equal(source, target) and np.array_equal(target, output):
        arrays = {"embedding.weight": target}
    else:
        arrays = {"source_embedding.weight": source, "target_embedding.weight": target}
        arrays |= {} if np.array_equal(target, output) else {"output.weight": output}
    bias = with_never(bias, len(target), never, NEVER)
    return (arrays if bias is None else {**arrays, "output.bias": bias}), start


def _check_rows(
    file: ModelFile, tables: Mapping[str, Floats], source: Mapping[str, int], target: Mapping[str, int]
) -> None:
    shared = tables.get("embedding.weight")
    for side, numbers in (("source", source), ("target", target)):
        rows = len(tables[f"{side}_embedding.weight"] if shared is None else shared)
        if max(numbers.values()) >= rows:
            raise ExportError(
                f"{file.path} has {rows} rows for the {side} side, but its vocabulary has {max(numbers.values()) + 1} "
                "tokens: the two do not belong together"
            )


def _scale(file: ModelFile, d_model: int) -> float:
    scales = []
    for side in ("encoder", "decoder"):
        name = f"{side}/scale_embeddings"
        value = file.raw(name) if file.has(name) else np.array(1, np.int8)
        if value.dtype == np.int8:
            scales.append(float(np.sqrt(d_model)) if value.any() else 1.0)
        else:
            scales.append(float(value.reshape(-1)[0]))
    if scales[0] != scales[1]:
        raise ExportError(f"{file.path} scales embeddings differently in encoder and decoder: not supported")
    return scales[0]


def _positions(file: ModelFile, width: int) -> Floats:
    names = [f"{side}/position_encodings/encodings" for side in ("encoder", "decoder")]
    if file.has(names[0]):
        tables = [file.floats(name) for name in names]
        if not np.array_equal(*tables):
            raise ExportError(f"{file.path} has other positions in encoder and decoder: not supported")
        return tables[0]
    # As CTranslate2 computes them where the file has none: the first position is 1.
    scales = np.exp(-np.log(10000.0) / (width // 2 - 1) * np.arange(width // 2))
    angles = np.arange(1, 513)[:, None] * scales  # [positions, width / 2]
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)


def _layer(file: ModelFile, side: str, index: int) -> dict[str, Floats]:
    theirs, ours = f"{side}/layer_{index}", f"{side}.layers.{index}"
    linears = [("self_attention.qkv", "self_attention/linear_0"), ("self_attention.out", "self_attention/linear_1")]
    linears += [("feed_forward.up", "ffn/linear_0"), ("feed_forward.down", "ffn/linear_1")]
    norms = [("self_attention_norm", "self_attention/layer_norm"), ("feed_forward_norm", "ffn/layer_norm")]
    if side == "decoder":
        linears += [(f"cross_attention.{part}", f"attention/linear_{i}") for i, part in enumerate(("q", "kv", "out"))]
        norms.append(("cross_attention_norm", "attention/layer_norm"))
    found: dict[str, Floats] = {}
    for part, name in linears:
        weight = file.floats(f"{theirs}/{name}/weight").T  # [in, out]
        bias = f"{theirs}/{name}/bias"
        found[f"{ours}.{part}.weight"] = np.ascontiguousarray(weight)
        found[f"{ours}.{part}.bias"] = file.floats(bias) if file.has(bias) else np.zeros(weight.shape[1], np.float32)
    for part, name in norms:
        found |= _norm(file, f"{theirs}/{name}", f"{ours}.{part}")
    return found


def _norm(file: ModelFile, theirs: str, ours: str) -> dict[str, Floats]:
    if file.has(f"{theirs}/gamma") and not file.has(f"{theirs}/beta"):
        raise ExportError(f"{file.path} normalizes without a mean (RMSNorm, as T5 does), which our network lacks")
    return {f"{ours}.weight": file.floats(f"{theirs}/gamma"), f"{ours}.bias": file.floats(f"{theirs}/beta")}
