"""A trained model in one file: weights, tokenizer, and what it is.

`X.safetensors` holds the network's tensors (fp32, or fp16 for keeping), the SentencePiece model as a tensor of bytes,
and one JSON header: configuration, pairs, how it was trained. Nothing else is needed to export it.
"""

import json
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from dragoman.model.network_config import TransformerConfig
from dragoman.model.tokenizer import Tokenizer
from dragoman.model.transformer import Transformer

TOKENIZER_KEY, HEADER_KEY = "tokenizer.model", "dragoman"
RESULT = "model.safetensors"  # the name in the run folder


class SavedModelError(Exception):
    """The file cannot be used or written; the message says why."""


@dataclass(frozen=True)
class SavedModel:
    network: Transformer
    tokenizer: Tokenizer
    pairs: list[dict[str, Any]]  # {"source", "target", "source_prefix_ids"}
    training: dict[str, Any]  # corpora, steps, scores: what the model card tells
    languages: tuple[str, ...] = ()  # of the two columns of a table to train on, in order; older files do not say

    @property
    def config(self) -> TransformerConfig:
        return self.network.config


def write_atomically(path: Path, write: Callable[[Path], None]) -> None:
    """A reader sees the old file or the new one, never half of one, whatever is killed when."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(temporary)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    except (OSError, RuntimeError, SafetensorError) as error:  # torch reports a full disk as RuntimeError
        with suppress(OSError):  # below what is no folder there is nothing to remove, either
            temporary.unlink(missing_ok=True)
        raise SavedModelError(f"could not write {path} ({error}); what was there before is untouched") from error


def save_model(path: Path, saved: SavedModel, half: bool = False) -> None:
    dtype = torch.float16 if half else torch.float32
    tensors = {name: tensor.detach().to(dtype).contiguous() for name, tensor in saved.network.state_dict().items()}
    tensors[TOKENIZER_KEY] = torch.from_numpy(np.frombuffer(saved.tokenizer.model, np.uint8).copy())
    header = {"config": saved.config.to_dict(), "pairs": saved.pairs, "training": saved.training}
    header["languages"] = list(saved.languages)
    metadata = {HEADER_KEY: json.dumps(header, sort_keys=True, ensure_ascii=False)}
    write_atomically(path, lambda temporary: save_file(tensors, temporary, metadata))


def load_model(path: Path) -> SavedModel:
    if path.is_dir():
        raise SavedModelError(no_folder(path))
    try:
        with safe_open(path, "pt") as file:
            header = json.loads((file.metadata() or {})[HEADER_KEY])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (safe_open is no dict)
    except (OSError, SafetensorError, KeyError, json.JSONDecodeError) as error:
        raise SavedModelError(f"{path} is not a saved Dragoman model: {error}") from error
    tokenizer = Tokenizer(tensors.pop(TOKENIZER_KEY).numpy().tobytes())
    network = Transformer(TransformerConfig(**header["config"]))
    try:
        network.load_state_dict({name: tensor.float() for name, tensor in tensors.items()})
    except RuntimeError as error:
        raise SavedModelError(
            f"{path} does not hold the weights that its own configuration asks for: {error}"
        ) from error
    languages = tuple(header.get("languages", ()))
    return SavedModel(network.eval(), tokenizer, header["pairs"], header["training"], languages)


def no_folder(path: Path) -> str:
    """What to give instead of a folder: a run's result, where there is one."""
    inside = sorted(path.glob("*.safetensors"), key=lambda file: (file.name != RESULT, file.name))
    if not inside:
        return f"{path} is a folder, and there is no .safetensors in it; a run writes {RESULT} when it ends"
    return f"{path} is a folder, not a saved model; give {inside[0]}"
