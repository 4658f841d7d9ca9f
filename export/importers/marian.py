"""Hugging Face Marian directories (OPUS-MT): config, weights, two SentencePiece models and their vocabulary."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dragoman.export import ExportError
from dragoman.export.importers.imported import ImportedModel, limits_for, read_bytes, read_json, with_never
from dragoman.export.network import NEVER, Floats, Network
from dragoman.service.bundles.manifest import Architecture, Pair, Rules, SpecialIds, StopRule, TokenizerFiles

ACTIVATIONS = {"swish": "swish", "silu": "swish", "relu": "relu"}
# What the configuration of an old conversion may ask for, although no Marian model of `transformers` does it.
STRANGE = ("normalize_before", "normalize_embedding", "add_final_layer_norm")
_PARTS = {
    "self_attention.out": "self_attn.out_proj",
    "self_attention_norm": "self_attn_layer_norm",
    "feed_forward.up": "fc1",
    "feed_forward.down": "fc2",
    "feed_forward_norm": "final_layer_norm",
}
_CROSS = {
    "cross_attention.q": "encoder_attn.q_proj",
    "cross_attention.out": "encoder_attn.out_proj",
    "cross_attention_norm": "encoder_attn_layer_norm",
}

Arrays = dict[str, Floats]


def read_marian(directory: Path, pairs: Sequence[str] = ()) -> ImportedModel:
    """`pairs` are written en-fr, or en-fr=TAG where the tag >>TAG<< is not named like the language."""
    config = _read_config(directory)
    generation = {**config, **_optional(directory / "generation_config.json")}
    numbers = _vocabularies(directory, config)
    network = _network(directory, config, generation)
    _check_sizes(directory, network, numbers)
    source, target = numbers["source"], numbers["target"]
    max_length = int(generation.get("max_length") or 512) - 1  # the start token counts there
    return ImportedModel(
        network=network,
        pairs=_pairs(directory, source, pairs),
        tokenizer=_tokenizer(config, source),
        files=_tokenizer_files(directory, numbers),
        special_ids=_special(config, target),
        rules=_rules(generation),
        limits=limits_for(len(network.arrays["positions.weight"]), max_length),
        origin={"imported_from": "a Hugging Face Marian directory", "config": config},
    )


def _read_config(directory: Path) -> dict[str, Any]:
    path = directory / "config.json"
    config: dict[str, Any] = read_json(path, "the configuration of a Marian model")
    kind = config.get("model_type")
    if kind != "marian":
        raise ExportError(
            f"{path} describes a model of the type {kind}, but only marian can be imported by this command"
        )
    if config.get("activation_function", "gelu") not in ACTIVATIONS:
        raise ExportError(
            f"{path} has the activation {config.get('activation_function')}; known are swish, silu and relu"
        )
    for name in STRANGE:
        if config.get(name):
            raise ExportError(f"{path} asks for {name}, which Marian models of transformers do not have")
    if config["encoder_attention_heads"] != config["decoder_attention_heads"]:
        raise ExportError(f"{path} has other numbers of heads in encoder and decoder, which the graphs do not have")
    return config


def _optional(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = read_json(path, "the configuration of the generation") if path.is_file() else {}
    return {name: value for name, value in found.items() if value is not None}


def _vocabularies(directory: Path, config: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    source = read_json(directory / "vocab.json", "the vocabulary")
    separate = directory / "target_vocab.json"
    shared = config.get("share_encoder_decoder_embeddings", True) or not separate.is_file()
    target = source if shared else read_json(separate, "the vocabulary of the target side")
    for name, numbers in (("vocab.json", source), (separate.name, target)):
        if "<unk>" not in numbers or "</s>" not in numbers or any(type(n) is not int for n in numbers.values()):
            raise ExportError(f"{directory / name} is not a vocabulary that numbers <unk>, </s> and other pieces")
    return {"source": source, "target": target}


def _check_sizes(directory: Path, network: Network, numbers: Mapping[str, Mapping[str, int]]) -> None:
    for side, table in (("source", network.table("source")), ("target", network.table("target"))):
        rows, largest = len(network.arrays[table]), max(numbers[side].values())
        if largest >= rows:
            raise ExportError(
                f"{directory}: the vocabulary of the {side} side numbers pieces up to {largest}, but the model has "
                f"{rows} rows; the two do not belong together"
            )


def _network(directory: Path, config: Mapping[str, Any], generation: Mapping[str, Any]) -> Network:
    weights = _Weights(directory)
    arrays = _tables(weights, config, generation)
    arrays["positions.weight"] = _positions(int(config["max_position_embeddings"]), int(config["d_model"]))
    for side in ("encoder", "decoder"):
        for i in range(int(config[f"{side}_layers"])):
            arrays |= _layer(weights, side, i)
    architecture = Architecture(
        vocab_size=len(arrays.get("embedding.weight", arrays.get("target_embedding.weight", ()))),
        d_model=int(config["d_model"]),
        d_ff=int(config["encoder_ffn_dim"]),
        num_heads=int(config["encoder_attention_heads"]),
        encoder_layers=int(config["encoder_layers"]),
        decoder_layers=int(config["decoder_layers"]),
        norm="post",
        positions="sinusoidal",
        max_positions=int(config["max_position_embeddings"]),
        share_layers=False,
        activation=ACTIVATIONS[config["activation_function"]],
    )
    weights.check_width(architecture.d_model, arrays)
    return Network(architecture, arrays, None if config.get("scale_embedding") else 1.0)


def _tables(weights: "_Weights", config: Mapping[str, Any], generation: Mapping[str, Any]) -> Arrays:
    if config.get("share_encoder_decoder_embeddings", True):
        arrays = {"embedding.weight": weights.first("model.shared.weight", "model.encoder.embed_tokens.weight")}
        table = arrays["embedding.weight"]
    else:
        arrays = {
            "source_embedding.weight": weights.first("model.encoder.embed_tokens.weight", "model.shared.weight"),
            "target_embedding.weight": weights.first("model.decoder.embed_tokens.weight", "lm_head.weight"),
        }
        table = arrays["target_embedding.weight"]
        output = weights.arrays.get("lm_head.weight")
        if output is not None and not config.get("tie_word_embeddings", True):
            arrays["output.weight"] = output
    bias = weights.arrays.get("final_logits_bias")
    never = sorted({ids[0] for ids in generation.get("bad_words_ids") or [] if len(ids) == 1})
    bias = with_never(None if bias is None else bias.reshape(-1), len(table), never, NEVER)
    return arrays if bias is None else {**arrays, "output.bias": bias}


def _layer(weights: "_Weights", side: str, index: int) -> Arrays:
    theirs, ours = f"model.{side}.layers.{index}", f"{side}.layers.{index}"
    found: Arrays = {}
    for part, name in {**_PARTS, **(_CROSS if side == "decoder" else {})}.items():
        for kind in ("weight", "bias"):
            found[f"{ours}.{part}.{kind}"] = weights.linear(f"{theirs}.{name}.{kind}")
    joined = [("self_attention.qkv", "self_attn", "qkv")]
    joined += [("cross_attention.kv", "encoder_attn", "kv")] if side == "decoder" else []
    for part, name, letters in joined:
        for kind in ("weight", "bias"):
            parts = [weights.linear(f"{theirs}.{name}.{letter}_proj.{kind}") for letter in letters]
            found[f"{ours}.{part}.{kind}"] = np.concatenate(parts, axis=-1)
    return found


class _Weights:
    """The tensors of a directory by their names: safetensors, or a pickle that torch reads without running it."""

    def __init__(self, directory: Path) -> None:
        safe, pickled = directory / "model.safetensors", directory / "pytorch_model.bin"
        self._path = safe if safe.is_file() or not pickled.is_file() else pickled
        self.arrays: Arrays = _safetensors(safe) if self._path == safe else _pickled(pickled)

    def first(self, *names: str) -> Floats:
        for name in names:
            if name in self.arrays:
                return self.arrays[name]
        raise ExportError(f"{self._path} has no tensor {names[0]}: the weights of a MarianMTModel were expected")

    def linear(self, name: str) -> Floats:
        array = self.first(name)
        return np.ascontiguousarray(array.T)

    def check_width(self, d_model: int, arrays: Arrays) -> None:
        for name in ("embedding.weight", "source_embedding.weight", "target_embedding.weight"):
            if name in arrays and arrays[name].shape[1] != d_model:
                raise ExportError(
                    f"{self._path} has tables of width {arrays[name].shape[1]}; config.json says {d_model}"
                )


def _safetensors(path: Path) -> Arrays:
    read_bytes(path, "the weights, model.safetensors or pytorch_model.bin,")
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        return {name: np.asarray(array, np.float32) for name, array in load_file(path).items()}
    except (SafetensorError, ValueError, TypeError) as error:
        raise ExportError(f"{path} is not a whole safetensors file ({error}): copy it again") from error


def _pickled(path: Path) -> Arrays:
    try:
        import torch
    except ImportError as error:
        raise ExportError(
            f"{path} can only be read with torch: pip install torch, or give model.safetensors"
        ) from error
    try:
        tensors = torch.load(path, map_location="cpu", weights_only=True)
        return {name: tensor.to(torch.float32).numpy() for name, tensor in tensors.items()}
    except Exception as error:  # torch raises many kinds for a file that is not its own
        raise ExportError(f"{path} is not a file of weights that torch reads safely: copy it again") from error


def _positions(count: int, width: int) -> Floats:
    """Sines of all frequencies, then their cosines: [count, width]."""
    angles = np.arange(count)[:, None] / np.power(10000, 2 * (np.arange(width) // 2) / width)  # [count, width]
    return np.concatenate([np.sin(angles[:, 0::2]), np.cos(angles[:, 1::2])], axis=1).astype(np.float32)


def _rules(generation: Mapping[str, Any]) -> Rules:
    early = generation.get("early_stopping", False)
    stop: StopRule = "count" if early is True else "bound" if early == "never" else "current"
    return Rules(
        normalization="length",
        alpha=float(generation.get("length_penalty", 1.0)),
        stop_rule=stop,
        repetition_guard=False,
        forced_end=generation.get("forced_eos_token_id") is not None,
        default_beam_size=int(generation.get("num_beams", 1)),
    )


def _special(config: Mapping[str, Any], numbers: Mapping[str, int]) -> SpecialIds:
    start = int(config.get("decoder_start_token_id", config["pad_token_id"]))
    return SpecialIds(int(config["pad_token_id"]), numbers["<unk>"], start, int(config["eos_token_id"]), ())


def _tokenizer(config: Mapping[str, Any], source: Mapping[str, int]) -> TokenizerFiles:
    pad = source.get("<pad>", int(config["pad_token_id"]))
    special = SpecialIds(pad, source["<unk>"], pad, source["</s>"], ())
    roles = ("source_vocabulary", "target_vocabulary")
    files = {"source": "source.spm", "target": "target.spm", **{role: f"{role}.json" for role in roles}}
    return TokenizerFiles("marian", files, source_special_ids=special)


def _tokenizer_files(directory: Path, numbers: Mapping[str, Mapping[str, int]]) -> dict[str, bytes]:
    files = {
        name: read_bytes(directory / name, "a SentencePiece model of the tokenizer")
        for name in ("source.spm", "target.spm")
    }
    for side in ("source", "target"):
        files[f"{side}_vocabulary.json"] = json.dumps(numbers[side], ensure_ascii=False).encode()
    return files


def _pairs(directory: Path, source: Mapping[str, int], wanted: Sequence[str]) -> tuple[Pair, ...]:
    tags = sorted(piece for piece in source if piece.startswith(">>") and piece.endswith("<<"))
    if not wanted:
        languages = _optional(directory / "tokenizer_config.json")
        named = [languages.get(side) for side in ("source_lang", "target_lang")]
        if tags or not all(isinstance(name, str) and name.isalpha() and name.islower() for name in named):
            some = f"; it knows the tags {' '.join(tags[:20])}" if tags else ""
            raise ExportError(f"{directory} does not say which pair to import: give --pair, such as --pair en-fr{some}")
        return (Pair(str(named[0]), str(named[1])),)
    return tuple(_pair(directory, source, tags, text) for text in wanted)


def _pair(directory: Path, source: Mapping[str, int], tags: Sequence[str], text: str) -> Pair:
    languages, _, tag = text.partition("=")
    first, _, second = languages.partition("-")
    if not first or not second:
        raise ExportError(f"--pair {text} is not a pair: write it like en-fr, or en-fr=fra where the tag is >>fra<<")
    if not tags:
        return Pair(first, second)
    piece = f">>{tag or second}<<"
    if piece not in source:
        raise ExportError(f"{directory} has no tag {piece}; it has {' '.join(tags[:20])}: write --pair {languages}=TAG")
    return Pair(first, second, (source[piece],))
