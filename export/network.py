"""A trained network as plain arrays, from which the graphs are built, whatever trained it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from dragoman.model.transformer import Transformer, sinusoids
from dragoman.service.bundles.manifest import Architecture

Floats = npt.NDArray[np.float32]
Side = Literal["encoder", "decoder"]


@dataclass(frozen=True)
class Network:
    """Weights by their PyTorch names, linear ones as [in, out], and the architecture."""

    architecture: Architecture
    arrays: Mapping[str, Floats]

    @property
    def head_dim(self) -> int:
        return self.architecture.d_model // self.architecture.num_heads

    def depth(self, side: Side) -> int:
        return self.architecture.encoder_layers if side == "encoder" else self.architecture.decoder_layers

    def layer(self, side: Side, index: int) -> str:
        """The name of the weights of a layer; with shared layers, always those of the first."""
        return f"{side}.layers.{0 if self.architecture.share_layers else index}"


def network_arrays(network: Transformer) -> Network:
    config = network.config
    arrays = {name: _array(name, tensor.detach().numpy()) for name, tensor in network.state_dict().items()}
    if config.positions == "sinusoidal":
        arrays["positions.weight"] = sinusoids(config.max_positions, config.d_model).numpy()
    fields = config.to_dict()
    del fields["dropout"]  # of training only
    return Network(Architecture(**fields), arrays)


def _array(name: str, array: npt.NDArray[np.float32]) -> Floats:
    is_linear = name.endswith(".weight") and array.ndim == 2 and not name.startswith(("embedding.", "positions."))
    return np.ascontiguousarray(array.T if is_linear else array, dtype=np.float32)
