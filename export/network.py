"""A trained network as plain arrays, from which the graphs are built, whatever trained it.

Names of the arrays, with linear weights as [in, out]:

- `embedding.weight` [V, d], where one table serves source, target and output. Otherwise `source_embedding.weight`,
  `target_embedding.weight`, and `output.weight` [V, d] where the output has a table of its own.
- `output.bias` [V], or none. A token that must never come out has `NEVER` there.
- `positions.weight` [positions, d], always.
- `encoder.layers.0.` and so on: `self_attention.qkv`, `self_attention.out`, `self_attention_norm`, `feed_forward.up`,
  `feed_forward.down`, `feed_forward_norm`; each has `.weight` and `.bias`.
- `decoder.layers.0.` and so on: the same, and `cross_attention.q`, `.kv`, `.out`, `cross_attention_norm`. A decoder of
  the kind `ssru` has `recurrence.candidate` (without a bias), `recurrence.forget` and `recurrence_norm` in the place of
  self-attention.
- `encoder.norm` and `decoder.norm` in a pre-norm network.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from dragoman.service.bundles.manifest import Architecture

Floats = npt.NDArray[np.float32]
Samples = Mapping[str, Floats]  # by point where int8 rounds: [tokens, width]
Side = Literal["encoder", "decoder"]
Text = Literal["source", "target"]
NEVER = -1e9  # the output bias of a token that must not come out
SHARED_TABLE = "embedding.weight"


@dataclass(frozen=True)
class Network:
    architecture: Architecture
    arrays: Mapping[str, Floats]
    embedding_scale: float | None = None  # what rows of the tables are multiplied by; None: the root of d_model
    norm_epsilon: float = 1e-5

    @property
    def head_dim(self) -> int:
        return self.architecture.d_model // self.architecture.num_heads

    @property
    def scale(self) -> float:
        return math.sqrt(self.architecture.d_model) if self.embedding_scale is None else self.embedding_scale

    @property
    def output_table(self) -> str:
        """The name of the table that hidden states are multiplied by, [V, d]."""
        return "output.weight" if "output.weight" in self.arrays else self.table("target")

    def table(self, text: Text) -> str:
        """The name of the table that tokens of either text are looked up in."""
        return SHARED_TABLE if SHARED_TABLE in self.arrays else f"{text}_embedding.weight"

    def depth(self, side: Side) -> int:
        return self.architecture.encoder_layers if side == "encoder" else self.architecture.decoder_layers

    def layer(self, side: Side, index: int) -> str:
        """The name of the weights of a layer; with shared layers, always those of the first."""
        return f"{side}.layers.{0 if self.architecture.share_layers else index}"
