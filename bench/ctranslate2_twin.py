"""The same saved model as a CTranslate2 model, so that both engines can be measured on identical weights.

python -m bench.ctranslate2_twin MODEL.safetensors OUT [int8 | float32 | …]
"""

import sys
from pathlib import Path

import numpy as np
from ctranslate2.specs import common_spec, transformer_spec

from dragoman.export.network import Network
from dragoman.export.trained_network import network_arrays
from dragoman.model.saved import SavedModel, load_model
from dragoman.model.tokenizer import BOS_ID, EOS_ID, UNK_ID


def vocabulary(size: int) -> list[str]:
    """A name for every id. The pieces' own names would do; numbers are as fast and never collide."""
    names = [f"t{i}" for i in range(size)]
    names[UNK_ID], names[BOS_ID], names[EOS_ID] = "<unk>", "<s>", "</s>"
    return names


def convert(saved: SavedModel, directory: Path, quantization: str | None) -> None:
    network = network_arrays(saved.network)
    shape = network.architecture
    spec = transformer_spec.TransformerSpec.from_config(
        (shape.encoder_layers, shape.decoder_layers),
        shape.num_heads,
        pre_norm=shape.norm == "pre",
        activation=common_spec.Activation.RELU,
    )
    _embeddings(spec, network)
    for side, stack in (("encoder", spec.encoder), ("decoder", spec.decoder)):
        if shape.norm == "pre":
            _norm(stack.layer_norm, network, f"{side}.norm")
        for i, layer in enumerate(stack.layer):
            _layer(layer, network, network.layer(side, i), is_decoder=side == "decoder")
    names = vocabulary(saved.config.vocab_size)
    spec.register_source_vocabulary(names)
    spec.register_target_vocabulary(names)
    spec.validate()
    spec.optimize(quantization=quantization)
    directory.mkdir(parents=True, exist_ok=True)
    spec.save(str(directory))


def _embeddings(spec: transformer_spec.TransformerSpec, network: Network) -> None:
    table = network.arrays["embedding.weight"].copy()  # the quantization works in place, and torch shares this memory
    spec.encoder.embeddings[0].weight = spec.decoder.embeddings.weight = table  # both are scaled by sqrt(d_model)
    spec.decoder.projection.weight = table
    spec.decoder.projection.bias = np.zeros(len(table), np.float32)
    for stack in (spec.encoder, spec.decoder):
        # Given, because CTranslate2's own sinusoids are laid out in another order.
        stack.position_encodings.encodings = network.arrays["positions.weight"]


def _layer(layer: object, network: Network, name: str, is_decoder: bool) -> None:
    attention, feed_forward = layer.self_attention, layer.ffn  # type: ignore[attr-defined]
    _norm(attention.layer_norm, network, f"{name}.self_attention_norm")
    _linear(attention.linear[0], network, f"{name}.self_attention.qkv")
    _linear(attention.linear[1], network, f"{name}.self_attention.out")
    if is_decoder:
        cross = layer.attention  # type: ignore[attr-defined]
        _norm(cross.layer_norm, network, f"{name}.cross_attention_norm")
        for i, part in enumerate(("q", "kv", "out")):
            _linear(cross.linear[i], network, f"{name}.cross_attention.{part}")
    _norm(feed_forward.layer_norm, network, f"{name}.feed_forward_norm")
    _linear(feed_forward.linear_0, network, f"{name}.feed_forward.up")
    _linear(feed_forward.linear_1, network, f"{name}.feed_forward.down")


def _linear(target: object, network: Network, name: str) -> None:
    target.weight = np.ascontiguousarray(network.arrays[f"{name}.weight"].T)  # type: ignore[attr-defined]
    target.bias = network.arrays[f"{name}.bias"]  # type: ignore[attr-defined]


def _norm(target: object, network: Network, name: str) -> None:
    target.gamma, target.beta = network.arrays[f"{name}.weight"], network.arrays[f"{name}.bias"]  # type: ignore[attr-defined]


if __name__ == "__main__":
    convert(load_model(Path(sys.argv[1])), Path(sys.argv[2]), (sys.argv[3:] or ["int8"])[0])
