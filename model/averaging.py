"""Weights that were averaged: over the last updates while a run goes on, and over its best validations.

At a rate that does not fall, weights wander around what they have learned; their mean is nearer to it than any of them.
Whether it really is better is measured before it is published: see `Trainer.publish`.
"""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from dragoman.model.checkpoint import Progress

WARM_UP = 10  # updates; the first ones are averaged over less, or the initial weights would count for ever


class RunningAverage:
    """An exponential mean of the weights, moved a little at every update."""

    def __init__(self, weights: Mapping[str, Tensor], decay: float) -> None:
        self.weights = {name: tensor.detach().clone() for name, tensor in weights.items()}
        self._decay = decay
        self._updates = 0

    @torch.no_grad()
    def add(self, weights: Mapping[str, Tensor]) -> None:
        self._updates += 1
        decay = min(self._decay, self._updates / (self._updates + WARM_UP))
        for name, mean in self.weights.items():
            mean.lerp_(weights[name], 1.0 - decay)

    def restore(self, weights: Mapping[str, Tensor], updates: int) -> None:
        self.weights = {name: tensor.clone() for name, tensor in weights.items()}
        self._updates = updates


def mean_of_best(folder: Path, progress: Progress) -> dict[str, Tensor]:
    """The mean of the best validations' weights, each tensor summed in float64."""
    assert progress.best, "nothing was validated yet"
    total: dict[str, Tensor] = {}
    for _, step in progress.best:
        for name, tensor in torch.load(folder / f"{step}.pt", weights_only=True).items():
            total[name] = total.get(name, torch.zeros_like(tensor, dtype=torch.float64)) + tensor
    return {name: (tensor / len(progress.best)).float() for name, tensor in total.items()}
