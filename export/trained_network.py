"""A network that `dragoman-train` trained, as the plain arrays that graphs are built from."""

import numpy as np
import numpy.typing as npt

from dragoman.export.network import Floats, Network
from dragoman.model.transformer import Transformer, sinusoids
from dragoman.service.bundles.manifest import Architecture


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
