"""The layers of the network as nodes: the order of their parts, for every graph and every precision.

`export.operators` chooses the operators; `export.graphs` and `export.explain_graph` connect inputs and outputs.
"""

from collections.abc import Callable

from dragoman.export.builder import GraphBuilder
from dragoman.export.network import Side
from dragoman.export.operators import Operand, Operators


class Layer:
    """One layer of either side. Layers may share weights, but each has calibrated points of its own."""

    def __init__(self, g: GraphBuilder, operators: Operators, side: Side, index: int) -> None:
        self.g, self.operators, self.index = g, operators, index
        self.weights, self.point = operators.network.layer(side, index), f"{side}.layers.{index}"
        self.pre_norm = operators.network.architecture.norm == "pre"

    def encode(self, x: str) -> str:
        x = self._residual("self_attention_norm", x, self._encoder_attention)
        return self._residual("feed_forward_norm", x, self._feed_forward)

    def decode(self, x: str) -> str:
        if self.operators.network.architecture.decoder == "ssru":
            x = self._residual("recurrence_norm", x, self._recurrence)
        else:
            x = self._residual("self_attention_norm", x, self._self_attention)
        x = self._residual("cross_attention_norm", x, self._cross_attention)
        return self._residual("feed_forward_norm", x, self._feed_forward)

    def _residual(self, norm: str, x: str, sublayer: Callable[[str], str]) -> str:
        name = f"{self.weights}.{norm}"
        if self.pre_norm:
            return self.g.node("Add", [x, sublayer(self.operators.norm(self.g, name, x))])
        return self.operators.norm(self.g, name, self.g.node("Add", [x, sublayer(x)]))

    def _encoder_attention(self, x: str) -> str:
        taken, name = self._operand("self_attention.qkv", x), f"{self.weights}.self_attention.qkv"
        # Three products are as fast as one product and a split, and copy nothing.
        query, key, value = (self.operators.linear(self.g, name, taken, (part, 3)) for part in range(3))
        return self._linear("self_attention.out", self.operators.encoder_attention(self.g, query, key, value))

    def _self_attention(self, x: str) -> str:
        taken, name = self._operand("self_attention.qkv", x), f"{self.weights}.self_attention"
        return self._linear("self_attention.out", self.operators.self_attention(self.g, self.index, name, taken))

    def _recurrence(self, x: str) -> str:
        """A simpler simple recurrent unit: one gate decides what the cell keeps; the ReLU is not kept."""
        taken, name = self._operand("recurrence", x), f"{self.weights}.recurrence"
        forget = self.g.node("Sigmoid", [self.operators.linear(self.g, f"{name}.forget", taken)])
        candidate = self.operators.linear(self.g, f"{name}.candidate", taken)
        return self.g.node("Relu", [self.operators.recurrence(self.g, self.index, forget, candidate)])

    def _cross_attention(self, x: str) -> str:
        query = self._linear("cross_attention.q", x)
        return self._linear("cross_attention.out", self.operators.cross_attention(self.g, self.index, query))

    def _feed_forward(self, x: str) -> str:
        hidden = self._linear("feed_forward.up", x)
        point = f"{self.point}.feed_forward.down"
        taken = self.operators.activated_operand(self.g, point, hidden)
        return self.operators.linear(self.g, f"{self.weights}.feed_forward.down", taken)

    def _operand(self, part: str, x: str) -> Operand:
        return self.operators.operand(self.g, f"{self.point}.{part}", x)

    def _linear(self, part: str, x: str) -> str:
        return self.operators.linear(self.g, f"{self.weights}.{part}", self._operand(part, x))


def final_norm(g: GraphBuilder, operators: Operators, side: Side, x: str) -> str:
    return operators.norm(g, f"{side}.norm", x) if operators.network.architecture.norm == "pre" else x
