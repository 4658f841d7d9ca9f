"""The state of a decoder, tensor by tensor, as the manifest describes it."""

from typing import Literal

from dragoman.export.network import Network
from dragoman.service.bundles.manifest import StateTensor

Dtype = Literal["float32", "float16"]


def float_state(network: Network, dtype: Dtype) -> list[StateTensor]:
    """Of every layer keys and values of the source, [rows, H, positions, dh], which are only read, and what it keeps of
    its own tokens: keys and values as well, or a recurrent cell."""
    return _attention_state(network, dtype, source_outputs=False)


def int8_state(network: Network, dtype: Dtype) -> list[StateTensor]:
    """The attention operator writes the last source position itself: it takes and returns the caches of the source."""
    width = network.architecture.d_model
    last = [
        StateTensor(f"last_{cache}", "encoded", dtype, ("rows", 1, width), encoder_output=f"cross_{cache}")
        for cache in _caches(network)
    ]
    return _attention_state(network, dtype, source_outputs=True) + last


def _attention_state(network: Network, dtype: Dtype, source_outputs: bool) -> list[StateTensor]:
    heads, head_dim = network.architecture.num_heads, network.head_dim
    own, source = ("rows", heads, "target", head_dim), ("rows", heads, "source", head_dim)
    state: list[StateTensor] = []
    for i in range(network.depth("decoder")):
        if network.architecture.decoder == "ssru":
            cell = ("rows", 1, network.architecture.d_model)
            state.append(StateTensor(f"cell{i}", "replaced", dtype, cell, f"cell{i}_out"))
        else:
            state += [StateTensor(name, "grows", dtype, own, f"{name}_out") for name in (f"self_k{i}", f"self_v{i}")]
        state += [
            StateTensor(name, "encoded", dtype, source, f"{name}_out" if source_outputs else None, name)
            for name in (f"cross_k{i}", f"cross_v{i}")
        ]
    return state


def _caches(network: Network) -> list[str]:
    return [f"{letter}{i}" for i in range(network.depth("decoder")) for letter in "kv"]
