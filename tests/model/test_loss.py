"""The loss that trains our models is torch's own, to the last digits that matter."""

import pytest
import torch
import torch.nn.functional as F

from dragoman.model.loss import smoothed_cross_entropy


def inputs(scale: float = 1.0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    hidden = scale * torch.randn(7, 5, dtype=torch.float64, generator=generator)
    weight = torch.randn(11, 5, dtype=torch.float64, generator=generator)
    return hidden.requires_grad_(), weight.requires_grad_(), torch.tensor([0, 10, 3, 3, 5, 0, 9])


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_it_is_torchs_cross_entropy(smoothing: float, scale: float) -> None:
    """Loss and both gradients; also where a network is sure and wrong, so that a probability is too small to exist."""
    hidden, weight, targets = inputs(scale)
    ours = 0.5 * smoothed_cross_entropy(hidden, weight, targets, smoothing)
    theirs = 0.5 * F.cross_entropy(hidden @ weight.T, targets, label_smoothing=smoothing, reduction="sum")
    torch.testing.assert_close(ours, theirs)
    for mine, other in zip(*(torch.autograd.grad(loss, (hidden, weight)) for loss in (ours, theirs)), strict=True):
        torch.testing.assert_close(mine, other)


def test_under_autocast_only_the_products_are_coarse() -> None:
    """bfloat16 has eight bits: loss and gradients are near the exact ones, in the types that they had."""
    hidden, weight, targets = (tensor.detach() for tensor in inputs())
    exact, coarse = (tuple(t.float().requires_grad_() for t in (hidden, weight)) for _ in range(2))
    wanted_loss = smoothed_cross_entropy(*exact, targets, 0.1)
    wanted_loss.backward()
    with torch.autocast("cpu", torch.bfloat16):
        loss = smoothed_cross_entropy(*coarse, targets, 0.1)
    loss.backward()
    torch.testing.assert_close(loss, wanted_loss, rtol=0.003, atol=0)
    for mine, wanted in zip(coarse, exact, strict=True):
        assert mine.grad is not None
        assert not torch.equal(mine.grad, wanted.grad)
        torch.testing.assert_close(mine.grad, wanted.grad, rtol=0.03, atol=0.03)


def test_nothing_is_lost_in_single_precision() -> None:
    """As it is trained."""
    hidden, weight, targets = (tensor.detach() for tensor in inputs())
    exact = smoothed_cross_entropy(hidden, weight, targets, 0.1)
    single = smoothed_cross_entropy(hidden.float(), weight.float(), targets, 0.1)
    torch.testing.assert_close(single.double(), exact, rtol=1e-6, atol=0)
