"""What every importer reads out of a foreign model: the network, the tokenizer's files, and how it is decoded."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dragoman.export import ExportError
from dragoman.export.network import Floats, Network
from dragoman.service.bundles.manifest import Limits, Pair, Rules, SpecialIds, TokenizerFiles

LONGEST = 256  # tokens of a source or of a translation; the service splits longer text


@dataclass(frozen=True)
class ImportedModel:
    network: Network
    pairs: tuple[Pair, ...]
    tokenizer: TokenizerFiles
    files: Mapping[str, bytes]  # of the tokenizer, by name
    special_ids: SpecialIds  # of the target side
    rules: Rules
    limits: Limits
    origin: Mapping[str, Any] = field(default_factory=dict)


def limits_for(positions: int, max_length: int | None = None) -> Limits:
    new = LONGEST if max_length is None else min(LONGEST, max_length)
    return Limits(min(LONGEST, positions), min(new, positions))


def read_bytes(path: Path, what: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ExportError(f"{path} cannot be read ({error.strerror}): {what} was expected there") from error


def read_json(path: Path, what: str, kind: type = dict) -> Any:
    try:
        value = json.loads(read_bytes(path, what).decode("utf-8"))
    except ValueError as error:
        raise ExportError(f"{path} is not JSON ({error}): {what} was expected there") from error
    if not isinstance(value, kind):
        raise ExportError(f"{path} holds a {type(value).__name__}: {what} was expected there")
    return value


def with_never(bias: Floats | None, vocab_size: int, ids: list[int], never: float) -> Floats | None:
    """The output bias with the tokens that must not come out; None where there is nothing to add."""
    if bias is None and not ids:
        return None
    whole = np.zeros(vocab_size, np.float32) if bias is None else bias.astype(np.float32).copy()
    whole[ids] = never
    return whole
