"""Begin a network from the weights of another one that has other pieces or narrower feed-forward layers.

What the old network computes is kept as far as it can be: a new piece begins as the mean of the old pieces that spell
it, and new units of a feed-forward layer begin with no say in its output.
"""

from dataclasses import replace

import torch
from torch import Tensor

from dragoman.model.network_config import TransformerConfig
from dragoman.model.saved import SavedModel, SavedModelError
from dragoman.model.tokenizer import Tokenizer
from dragoman.model.transformer import Transformer

MAY_GROW = ("vocab_size", "d_ff", "dropout")


def graft(old: SavedModel, tokenizer: Tokenizer, config: TransformerConfig) -> Transformer:
    """A network of this shape for this tokenizer, as near to the old one as may be."""
    refuse_another_shape(old.config, config)
    network = Transformer(config)
    weights, grown = old.network.state_dict(), network.state_dict()
    for name, tensor in grown.items():
        if name == "embedding.weight":
            tensor.copy_(spelled_embeddings(old, tokenizer))
        else:
            place(weights[name], tensor, is_output=name.endswith("feed_forward.down.weight"))
    network.load_state_dict(grown)
    return network


def refuse_another_shape(old: TransformerConfig, new: TransformerConfig) -> None:
    expected = replace(new, **{name: getattr(old, name) for name in MAY_GROW})
    if expected != old or new.d_ff < old.d_ff:
        raise SavedModelError(
            "weights can begin a network that differs in its pieces or has wider feed-forward layers, nothing else: "
            f"they have {old.to_dict()}, the preset asks for {new.to_dict()}"
        )


def spelled_embeddings(old: SavedModel, tokenizer: Tokenizer) -> Tensor:
    """[V, d]: the mean of the old pieces that spell each new one."""
    embedding = old.network.embedding.weight.detach()
    rows = [embedding[old.tokenizer.spell(tokenizer.piece(i))].mean(0) for i in range(tokenizer.vocab_size)]
    return torch.stack(rows)


def place(old: Tensor, new: Tensor, is_output: bool) -> None:
    """The old weights in the corner of the new, which may be larger."""
    if is_output or new.dim() == 1:  # what is new starts silent; rows of `up` start random, or they would all be one
        new.zero_()
    new[tuple(slice(size) for size in old.shape)] = old
