"""The loss that trains our models is torch's own, to the last digits that matter."""

import pytest
import torch
import torch.nn.functional as F

from dragoman.model.loss import sampled_cross_entropy, smoothed_cross_entropy


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


def test_a_sampled_loss_is_right_on_average() -> None:
    """Nearly: the logarithm of a mean is above a mean of logarithms. Uncorrected, it would be off by a sixth."""
    generator = torch.Generator().manual_seed(5)
    hidden = torch.randn(6, 8, generator=generator).requires_grad_()
    weight = (0.5 * torch.randn(200, 8, generator=generator)).requires_grad_()
    targets = torch.tensor([3, 3, 150, 7, 90, 12])
    exact = smoothed_cross_entropy(hidden, weight, targets, 0.0)
    d_exact = torch.autograd.grad(exact, (hidden, weight))
    torch.testing.assert_close(sampled_cross_entropy(hidden, weight, targets, 0.0, 195), exact)
    torch.manual_seed(1)
    losses, d_sums = [], [torch.zeros_like(hidden), torch.zeros_like(weight)]
    for _ in range(400):
        loss = sampled_cross_entropy(hidden, weight, targets, 0.0, 60)
        losses.append(float(loss.detach()))
        for total, one in zip(d_sums, torch.autograd.grad(loss, (hidden, weight)), strict=True):
            total += one / 400
    assert abs(sum(losses) / 400 - float(exact.detach())) < 0.02 * float(exact.detach())
    assert max(losses) - min(losses) > 0.1
    for mean, wanted in zip(d_sums, d_exact, strict=True):
        assert F.cosine_similarity(mean.flatten(), wanted.flatten(), dim=0) > 0.99
