"""Muon orthogonalizes what it should, leaves the rest to Adam, and comes back from a checkpoint."""

import copy

import pytest
import torch

from dragoman.model.network_config import TransformerConfig
from dragoman.model.optimizer import Muon, make_optimizers, orthogonalize, square_parts
from dragoman.model.train_options import TrainConfig
from dragoman.model.transformer import Transformer
from dragoman.model.workers import Workers

MUON = TrainConfig(optimizer="muon")


@pytest.mark.parametrize("shape", [(3, 16, 16), (2, 16, 64)])
def test_orthogonalized_matrices_keep_their_directions(shape: tuple[int, int, int]) -> None:
    """Singular vectors stay, singular values come near 1: that is what the update is for."""
    torch.manual_seed(0)
    matrices = torch.randn(shape)
    left, _, right = torch.linalg.svd(matrices, full_matrices=False)
    result = orthogonalize(matrices)
    values = torch.linalg.svdvals(result)
    assert values.min() > 0.3
    assert values.max() < 1.3
    inside = left.mT @ result @ right.mT  # diagonal, if the singular vectors are the same
    torch.testing.assert_close(
        inside - torch.diag_embed(inside.diagonal(dim1=1, dim2=2)), torch.zeros_like(inside), atol=1e-4, rtol=0
    )


def test_packed_projections_are_taken_apart() -> None:
    """Q, K and V are three matrices that happen to be stored as one."""
    assert [tuple(part.shape) for part in square_parts(torch.zeros(48, 16))] == [(16, 16)] * 3
    assert [tuple(part.shape) for part in square_parts(torch.zeros(64, 16))] == [(16, 64)]
    assert [tuple(part.shape) for part in square_parts(torch.zeros(16, 64))] == [(16, 64)]


def test_parts_are_views_so_that_steps_reach_the_weights() -> None:
    """A copy would be trained, and thrown away."""
    weight = torch.nn.Parameter(torch.randn(48, 16))
    before = weight.detach().clone()
    weight.grad = torch.randn_like(weight)
    Muon([weight], Workers(), lr=0.1).step()
    assert ((weight - before).abs() > 0).all()


def test_every_parameter_has_one_optimizer() -> None:
    """None forgotten, none moved twice; embeddings and norms stay with Adam."""
    network = Transformer(TransformerConfig(20, 16, 32, 2, 2, 1))
    optimizers = make_optimizers(network, MUON, Workers())
    owned = [id(p) for part in optimizers.parts.values() for group in part.param_groups for p in group["params"]]
    assert sorted(owned) == sorted(id(p) for p in network.parameters())
    adam = {id(p) for group in optimizers.parts["adam"].param_groups for p in group["params"]}
    assert id(network.embedding.weight) in adam
    assert id(network.encoder.layers[0].feed_forward.up.weight) not in adam


def test_state_comes_back() -> None:
    """Resuming with an empty momentum would be another run."""
    torch.manual_seed(0)
    first = Transformer(TransformerConfig(20, 16, 32, 2, 1, 1))
    second = Transformer(first.config)
    optimizers = make_optimizers(first, MUON, Workers())
    gradients = [torch.randn_like(p) for p in first.parameters()]
    step(first, optimizers, gradients)
    second.load_state_dict(first.state_dict())
    restored = make_optimizers(second, MUON, Workers())
    restored.load_state_dict(copy.deepcopy(optimizers.state_dict()))  # as a file would
    step(first, optimizers, gradients)
    step(second, restored, gradients)
    for mine, other in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(mine, other)


def step(network: Transformer, optimizers: object, gradients: list[torch.Tensor]) -> None:
    for parameter, gradient in zip(network.parameters(), gradients, strict=True):
        parameter.grad = gradient.clone()
    optimizers.set_rate(1e-3)  # type: ignore[attr-defined]
    optimizers.step()  # type: ignore[attr-defined]
