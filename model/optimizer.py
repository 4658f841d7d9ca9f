"""Who moves which weights: Adam for everything, as in the paper, or Muon for the matrices of the layers.

Muon (Jordan et al., 2024) turns the momentum of a matrix into the nearest orthogonal one before it steps, so that rare
directions are learned as fast as common ones. torch has one that computes in bfloat16, which CPUs without units for it
run twenty times slower than float32; this one computes in the type it is told to and takes equal shapes together.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from dragoman.model.train_options import TrainConfig
from dragoman.model.transformer import Transformer
from dragoman.model.workers import Workers

QUINTIC = (3.4445, -4.7750, 2.0315)  # drives singular values towards 1 in five rounds
ROUNDS = 5
# The step's size as Adam's would be (Liu et al., 2025), so that one learning rate serves both.
MATCH_ADAM = 0.2


def orthogonalize(matrices: Tensor) -> Tensor:
    """[N, rows, columns] with rows <= columns: Newton-Schulz towards U V^T of each."""
    x = matrices / (matrices.norm(dim=(1, 2), keepdim=True) + 1e-7)
    a, b, c = QUINTIC
    for _ in range(ROUNDS):
        gram = x @ x.mT  # [N, rows, rows]
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x


def square_parts(weight: Tensor) -> Iterable[Tensor]:
    """Packed projections are several matrices: [3d, d] is Q, K and V. Tall matrices are laid down."""
    rows, columns = weight.shape
    if rows > columns and rows % columns == 0 and rows < 4 * columns:
        return weight.split(columns)
    return (weight.mT if rows > columns else weight,)


class Muon(torch.optim.Optimizer):
    """Processes that train together have the same matrices to turn: each turns its share of them."""

    def __init__(
        self,
        parameters: Iterable[Tensor],
        workers: Workers,
        lr: float = 1e-3,
        momentum: float = 0.95,
        turning: torch.dtype = torch.float32,
    ) -> None:
        super().__init__(parameters, {"lr": lr, "momentum": momentum})
        self._workers = workers
        self._turning = turning  # five rounds of Newton-Schulz forgive a coarse type

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            parts: dict[torch.Size, list[tuple[Tensor, Tensor]]] = {}  # shape -> (weight, direction)
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                momentum = self.state[weight].setdefault("momentum", torch.zeros_like(weight))
                momentum.lerp_(weight.grad, 1 - group["momentum"])
                direction = weight.grad.lerp(momentum, group["momentum"])  # Nesterov's look ahead
                for part, towards in zip(square_parts(weight), square_parts(direction), strict=True):
                    parts.setdefault(part.shape, []).append((part, towards))
            for shape, pairs in parts.items():
                scale = group["lr"] * MATCH_ADAM * max(shape) ** 0.5
                towards = torch.stack([direction for _, direction in pairs]).to(self._turning)
                changes = self._workers.spread(orthogonalize, towards)
                for (part, _), change in zip(pairs, changes, strict=True):
                    part.sub_(change, alpha=scale)


class Optimizers:
    """Several optimizers, stepped and saved as one."""

    def __init__(self, parts: dict[str, torch.optim.Optimizer]) -> None:
        self.parts = parts

    def set_rate(self, rate: float) -> None:
        for part in self.parts.values():
            for group in part.param_groups:
                group["lr"] = rate

    def step(self) -> None:
        for part in self.parts.values():
            part.step()

    def zero_grad(self) -> None:
        for part in self.parts.values():
            part.zero_grad()

    def state_dict(self) -> dict[str, Any]:
        return {name: part.state_dict() for name, part in self.parts.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, part in self.parts.items():
            part.load_state_dict(state[name])


def make_optimizers(network: Transformer, config: TrainConfig, workers: Workers) -> Optimizers:
    matrices: list[nn.Parameter] = []
    if config.optimizer == "muon":
        layers = [*network.encoder.layers, *network.decoder.layers]
        matrices = [p for layer in layers for p in layer.parameters() if p.dim() == 2]
    chosen = {id(p) for p in matrices}
    others = [p for p in network.parameters() if id(p) not in chosen]
    parts: dict[str, torch.optim.Optimizer] = {
        "adam": torch.optim.Adam(others, betas=(0.9, 0.98), eps=1e-9, fused=True)
    }
    if matrices:
        turning = torch.bfloat16 if config.precision == "bf16" else torch.float32
        parts["muon"] = Muon(matrices, workers, turning=turning)
    return Optimizers(parts)
