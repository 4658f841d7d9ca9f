"""The loss of a Transformer: cross-entropy over the vocabulary with label smoothing, its gradient made along with it.

torch's own keeps the logarithms of all probabilities, and walks over them for either half of a smoothed loss, forth and
back. The gradient is nothing but the probabilities less what was wanted: it is made where they lie.
"""

from typing import Any

import torch
from torch import Tensor


class _SmoothedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor, smoothing: float) -> Tensor:
        logits = hidden @ weight.T  # [N, V]
        wanted = targets[:, None]  # [N, 1]
        highest, at = logits.max(1, keepdim=True)
        on_target, everywhere = logits.gather(1, wanted), logits.mean(1, keepdim=True)
        excess = torch.softmax(logits, 1)  # [N, V]
        # The highest probability is at least 1 / V: its logarithm is safe where another's may not be.
        log_sum = highest - excess.gather(1, at).log()
        excess -= smoothing / weight.shape[0]
        excess.scatter_add_(1, wanted, excess.new_full(wanted.shape, smoothing - 1.0))
        ctx.save_for_backward(hidden, weight, excess)
        return (log_sum - (1.0 - smoothing) * on_target - smoothing * everywhere).sum()

    @staticmethod
    def backward(ctx: Any, *d_loss: Tensor) -> tuple[Tensor, Tensor, None, None]:
        hidden, weight, excess = ctx.saved_tensors
        scale = d_loss[0]
        return (excess @ weight).mul_(scale), (excess.T @ hidden).mul_(scale), None, None


def smoothed_cross_entropy(hidden: Tensor, weight: Tensor, targets: Tensor, smoothing: float) -> Tensor:
    """hidden [N, d], weight [V, d], targets [N] -> the sum over N: `F.cross_entropy` of the logits hidden weight^T."""
    return _SmoothedCrossEntropy.apply(hidden, weight, targets, smoothing)  # type: ignore[no-untyped-call,no-any-return]
