"""Record the inputs of every linear layer of a trained network on real sentences.

Targets are the network's own translations, so that the decoder sees what it will see when it serves. The caller makes
them; `export.quantize` chooses scales from the values.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from dragoman.export.network import Floats, Samples
from dragoman.model.tokenizer import BOS_ID
from dragoman.model.transformer import Transformer

MAX_TOKENS = 6000  # kept of each point: enough for stable scales, small enough for memory


@dataclass(frozen=True)
class _Point:
    """A linear layer in a layer of the encoder or the decoder."""

    side: str
    layer: int
    num_layers: int
    num_calls: int  # in one pass
    part: str

    def name(self, call: int) -> str:
        """A shared layer is called once for every place it has in the stack, and each place is a point of its own."""
        return f"{self.side}.layers.{self.layer + call * self.num_layers}.{self.part}"


@torch.inference_mode()
def observe(network: Transformer, pairs: Iterable[tuple[Sequence[int], Sequence[int]]]) -> Samples:
    """The values at every point where int8 rounds: by linear layer, `memory` for the cross keys, and `logits`.

    `pairs` are source ids and the ids of the network's own translation, without bos and eos.
    """
    values: defaultdict[str, list[Floats]] = defaultdict(list)
    with _recorded(network, values):
        for source, target in pairs:  # one at a time: nothing is padded
            network(torch.tensor([list(source)]), torch.tensor([[BOS_ID, *target]]))
    return {name: _thinned(np.concatenate(parts)) for name, parts in values.items()}


@contextmanager
def _recorded(network: Transformer, values: defaultdict[str, list[Floats]]) -> Iterator[None]:
    calls: Counter[_Point] = Counter()

    def record(name: str, x: Tensor) -> None:
        values[name].append(x.reshape(-1, x.shape[-1]).numpy().copy())

    def before(point: _Point) -> Callable[[nn.Module, tuple[Tensor]], None]:
        def hook(module: nn.Module, inputs: tuple[Tensor]) -> None:
            record(point.name(calls[point] % point.num_calls), inputs[0])
            calls[point] += 1

        return hook

    handles = [
        network.encoder.register_forward_hook(lambda module, inputs, output: record("memory", output)),
        network.decoder.register_forward_hook(lambda module, inputs, output: record("logits", output)),
        *(module.register_forward_pre_hook(before(point)) for point, module in _points(network)),
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _points(network: Transformer) -> Iterator[tuple[_Point, nn.Module]]:
    for side, stack in (("encoder", network.encoder), ("decoder", network.decoder)):
        for index, layer in enumerate(stack.layers):
            for part, module in layer.named_modules():
                if isinstance(module, nn.Linear) and part != "cross_attention.kv":  # that one takes the memory
                    num_layers = len(stack.layers)
                    yield _Point(side, index, num_layers, -(-stack.depth // num_layers), part), module


def _thinned(values: Floats) -> Floats:
    return values[:: -(-len(values) // MAX_TOKENS)]  # every n-th, the same on every run
