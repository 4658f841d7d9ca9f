"""A network as plain NumPy, one sentence at a time: what imported graphs are checked against, token for token.

It reads the arrays of `export.network` and shares nothing else with the graphs.

Shapes: S source tokens, d = d_model, H heads of dh = d / H.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from dragoman.export.network import Floats, Network, Text

Sublayer = Callable[[Floats], Floats]


@dataclass
class Decoded:
    """Generated tokens with the end of sentence, and at each step the gap between the two best log-probabilities."""

    ids: list[int] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)


@dataclass
class _Memory:
    """What a decoder layer knows of the source, and of its own tokens: a cell, or keys and values so far."""

    keys: Floats  # [H, S, dh]
    values: Floats
    cell: Floats  # [1, d]
    own: list[tuple[Floats, Floats]] = field(default_factory=list)  # [H, 1, dh] each


class ReferenceNetwork:
    def __init__(self, network: Network) -> None:
        self._network, self._arrays, self._shape = network, network.arrays, network.architecture

    def greedy(self, source: Sequence[int], limit: int, bos_id: int, eos_id: int) -> Decoded:
        memories, found, token = self._start(self._encode(source)), Decoded(), bos_id
        while len(found.ids) < limit and (not found.ids or token != eos_id):
            logits = self._step(token, len(found.ids), memories)
            best = np.partition(logits, -2)[-2:]
            token = int(logits.argmax())
            found.ids.append(token)
            found.gaps.append(float(best[1] - best[0]))
        return found

    def _encode(self, source: Sequence[int]) -> Floats:
        x = self._embedded(source, 0, "source")  # [S, d]
        for i in range(self._shape.encoder_layers):
            name = self._network.layer("encoder", i)
            x = self._residual(f"{name}.self_attention_norm", x, partial(self._self_attention, name))
            x = self._residual(f"{name}.feed_forward_norm", x, partial(self._feed_forward, name))
        return self._final_norm("encoder", x)

    def _start(self, memory: Floats) -> list[_Memory]:
        found = []
        for i in range(self._shape.decoder_layers):
            name = f"{self._network.layer('decoder', i)}.cross_attention.kv"
            keys, values = (self._heads(each) for each in np.split(self._linear(name, memory), 2, -1))
            found.append(_Memory(keys, values, np.zeros((1, self._shape.d_model), np.float32)))
        return found

    def _step(self, token: int, time: int, memories: list[_Memory]) -> Floats:
        x = self._embedded([token], time, "target")  # [1, d]
        for i, memory in enumerate(memories):
            name = self._network.layer("decoder", i)
            if self._shape.decoder == "ssru":
                x = self._residual(f"{name}.recurrence_norm", x, partial(self._recurrence, name, memory))
            else:
                x = self._residual(f"{name}.self_attention_norm", x, partial(self._look_back, name, memory))
            x = self._residual(f"{name}.cross_attention_norm", x, partial(self._cross, name, memory))
            x = self._residual(f"{name}.feed_forward_norm", x, partial(self._feed_forward, name))
        x = self._final_norm("decoder", x)
        logits = x @ self._arrays[self._network.output_table].T
        return np.asarray(logits[0] + self._arrays.get("output.bias", np.float32(0)), np.float32)

    def _embedded(self, ids: Sequence[int], first: int, text: Text) -> Floats:
        rows = self._arrays[self._network.table(text)][list(ids)] * np.float32(self._network.scale)
        return np.asarray(rows + self._arrays["positions.weight"][first : first + len(ids)], np.float32)

    def _residual(self, norm: str, x: Floats, sublayer: Sublayer) -> Floats:
        if self._shape.norm == "pre":
            return np.asarray(x + sublayer(self._norm(norm, x)), np.float32)
        return self._norm(norm, x + sublayer(x))

    def _final_norm(self, side: str, x: Floats) -> Floats:
        return self._norm(f"{side}.norm", x) if self._shape.norm == "pre" else x

    def _norm(self, name: str, x: Floats) -> Floats:
        centred = x - x.mean(-1, keepdims=True)
        deviation = np.sqrt((centred * centred).mean(-1, keepdims=True) + np.float32(self._network.norm_epsilon))
        gain, bias = self._arrays[f"{name}.weight"], self._arrays[f"{name}.bias"]
        return np.asarray(gain * (centred / deviation) + bias, np.float32)

    def _linear(self, name: str, x: Floats) -> Floats:
        product = x @ self._arrays[f"{name}.weight"]
        return np.asarray(product + self._arrays.get(f"{name}.bias", np.float32(0)), np.float32)

    def _heads(self, x: Floats) -> Floats:
        return x.reshape(len(x), self._shape.num_heads, -1).transpose(1, 0, 2)  # [H, rows, dh]

    def _attend(self, query: Floats, keys: Floats, values: Floats) -> Floats:
        scores = query @ keys.transpose(0, 2, 1) / np.sqrt(np.float32(query.shape[-1]))  # [H, rows, S]
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = (weights / weights.sum(-1, keepdims=True)) @ values  # [H, rows, dh]
        return np.asarray(mixed.transpose(1, 0, 2).reshape(query.shape[1], -1), np.float32)

    def _self_attention(self, name: str, x: Floats) -> Floats:
        heads = [self._heads(each) for each in np.split(self._linear(f"{name}.self_attention.qkv", x), 3, -1)]
        return self._linear(f"{name}.self_attention.out", self._attend(*heads))

    def _look_back(self, name: str, memory: _Memory, x: Floats) -> Floats:
        query, *own = (self._heads(each) for each in np.split(self._linear(f"{name}.self_attention.qkv", x), 3, -1))
        memory.own.append((own[0], own[1]))
        keys, values = (np.concatenate([each[i] for each in memory.own], 1) for i in range(2))
        return self._linear(f"{name}.self_attention.out", self._attend(query, keys, values))

    def _recurrence(self, name: str, memory: _Memory, x: Floats) -> Floats:
        forget = 1 / (1 + np.exp(-self._linear(f"{name}.recurrence.forget", x)))
        fresh = (1 - forget) * self._linear(f"{name}.recurrence.candidate", x)
        memory.cell = np.asarray(forget * memory.cell + fresh, np.float32)
        return np.maximum(memory.cell, 0)

    def _cross(self, name: str, memory: _Memory, x: Floats) -> Floats:
        query = self._heads(self._linear(f"{name}.cross_attention.q", x))
        return self._linear(f"{name}.cross_attention.out", self._attend(query, memory.keys, memory.values))

    def _feed_forward(self, name: str, x: Floats) -> Floats:
        hidden = self._linear(f"{name}.feed_forward.up", x)
        swish = self._shape.activation == "swish"
        hidden = np.asarray(hidden / (1 + np.exp(-hidden)) if swish else np.maximum(hidden, 0), np.float32)
        return self._linear(f"{name}.feed_forward.down", hidden)
