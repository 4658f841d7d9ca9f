"""The forward pass of an encoder-decoder Transformer in plain NumPy: what the graphs of an imported model must compute.

One sentence at a time, nothing padded, no caches. `record` is told the values at every point where int8 rounds, so the
same pass calibrates.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from dragoman.export.network import Floats, Network

Record = Callable[[str, Floats], None]
MAX_TOKENS = 6000  # kept of each point, as for networks trained here


class Reference:
    def __init__(self, network: Network, record: Record | None = None) -> None:
        self._network, self._arrays = network, network.arrays
        self._record = record or (lambda point, values: None)

    def log_probs(self, source: Sequence[int], target: Sequence[int]) -> Floats:
        """[T, V]: of the token after each of `target`, which begins with the start token."""
        logits = self.logits(source, target).astype(np.float64)
        logits -= logits.max(-1, keepdims=True)
        return np.asarray(logits - np.log(np.exp(logits).sum(-1, keepdims=True)), np.float32)

    def logits(self, source: Sequence[int], target: Sequence[int]) -> Floats:
        memory = self._encode(source)  # [S, d]
        self._record("memory", memory)
        x = self._embed("target", target)
        for i in range(self._network.depth("decoder")):
            x = self._layer("decoder", i, x, memory)
        x = self._final("decoder", x)
        self._record("logits", x)
        found: Floats = x @ self._arrays[self._network.output_table].T  # [T, V]
        return found + self._arrays["output.bias"] if "output.bias" in self._arrays else found

    def _encode(self, source: Sequence[int]) -> Floats:
        x = self._embed("source", source)
        for i in range(self._network.depth("encoder")):
            x = self._layer("encoder", i, x, None)
        return self._final("encoder", x)

    def _embed(self, text: str, ids: Sequence[int]) -> Floats:
        table = self._arrays[self._network.table("source" if text == "source" else "target")]
        rows = table[np.array(ids)] * np.float32(self._network.scale)
        return np.asarray(rows + self._arrays["positions.weight"][: len(ids)], np.float32)

    def _final(self, side: str, x: Floats) -> Floats:
        return self._norm(f"{side}.norm", x) if self._network.architecture.norm == "pre" else x

    def _layer(self, side: str, index: int, x: Floats, memory: Floats | None) -> Floats:
        name = f"{side}.layers.{index}"
        x = self._residual(f"{name}.self_attention_norm", x, lambda y: self._own(name, y, memory is not None))
        if memory is not None:
            x = self._residual(f"{name}.cross_attention_norm", x, lambda y: self._cross(name, y, memory))
        return self._residual(f"{name}.feed_forward_norm", x, lambda y: self._feed_forward(name, y))

    def _residual(self, norm: str, x: Floats, sublayer: Callable[[Floats], Floats]) -> Floats:
        if self._network.architecture.norm == "pre":
            return x + sublayer(self._norm(norm, x))
        return self._norm(norm, x + sublayer(x))

    def _own(self, name: str, x: Floats, causal: bool) -> Floats:
        query, key, value = np.split(self._linear(f"{name}.self_attention.qkv", x), 3, axis=-1)
        return self._linear(f"{name}.self_attention.out", self._attend(query, key, value, causal))

    def _cross(self, name: str, x: Floats, memory: Floats) -> Floats:
        query = self._linear(f"{name}.cross_attention.q", x)
        key, value = np.split(self._product(f"{name}.cross_attention.kv", memory), 2, axis=-1)
        return self._linear(f"{name}.cross_attention.out", self._attend(query, key, value, False))

    def _feed_forward(self, name: str, x: Floats) -> Floats:
        hidden = self._linear(f"{name}.feed_forward.up", x)
        if self._network.architecture.activation == "swish":
            return self._linear(f"{name}.feed_forward.down", hidden / (1 + np.exp(-hidden)))
        return self._linear(f"{name}.feed_forward.down", np.maximum(hidden, 0))

    def _attend(self, query: Floats, key: Floats, value: Floats, causal: bool) -> Floats:
        heads = self._network.architecture.num_heads
        q, k, v = (x.reshape(len(x), heads, -1).swapaxes(0, 1) for x in (query, key, value))  # [H, T or S, dh]
        scores = q @ k.swapaxes(1, 2) / np.float32(np.sqrt(q.shape[-1]))  # [H, T, S]
        if causal:
            scores = np.where(np.tri(len(query), dtype=bool), scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = (weights / weights.sum(-1, keepdims=True)) @ v  # [H, T, dh]
        return np.asarray(mixed.swapaxes(0, 1).reshape(len(query), -1), np.float32)

    def _linear(self, name: str, x: Floats) -> Floats:
        self._record(name, x)
        return self._product(name, x)

    def _product(self, name: str, x: Floats) -> Floats:
        return np.asarray(x @ self._arrays[f"{name}.weight"] + self._arrays[f"{name}.bias"], np.float32)

    def _norm(self, name: str, x: Floats) -> Floats:
        centred = x - x.mean(-1, keepdims=True)
        deviation = np.sqrt(np.square(centred).mean(-1, keepdims=True) + self._network.norm_epsilon)
        return np.asarray(centred / deviation * self._arrays[f"{name}.weight"] + self._arrays[f"{name}.bias"], "f4")


def observe_plainly(network: Network, pairs: Iterable[tuple[Sequence[int], Sequence[int]]]) -> dict[str, Floats]:
    """The values at every point where int8 rounds, by point [tokens, width]; targets begin with the start token."""
    values: defaultdict[str, list[Floats]] = defaultdict(list)
    reference = Reference(network, lambda point, x: values[point].append(x))
    for source, target in pairs:
        reference.logits(source, target)
    joined = {point: np.concatenate(parts) for point, parts in values.items()}
    return {point: array[:: -(-len(array) // MAX_TOKENS)] for point, array in joined.items()}
