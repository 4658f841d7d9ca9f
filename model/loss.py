"""The loss of a Transformer: cross-entropy over the vocabulary with label smoothing, its gradient made along with it.

torch's own keeps the logarithms of all probabilities, and walks over them for either half of a smoothed loss, forth and
back. The gradient is nothing but the probabilities less what was wanted: it is made where they lie. Under autocast the
three products are computed in its type, and everything between them in the type of the hidden states.
"""

from typing import Any

import torch
from torch import Tensor


class _SmoothedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor, smoothing: float, kind: torch.dtype
    ) -> Tensor:
        ctx.kinds = hidden.dtype, weight.dtype
        rows = torch.arange(len(targets))
        narrow_hidden, narrow_weight = hidden.to(kind), weight.to(kind)
        logits = narrow_hidden @ narrow_weight.T  # [N, V]
        excess = torch.softmax(logits, 1, dtype=hidden.dtype)  # [N, V]
        # The highest probability is at least 1 / V: its logarithm is safe where another's may not be.
        highest, at = excess.max(1)
        log_sum, on_target = logits[rows, at] - highest.log(), logits[rows, targets].to(hidden.dtype)
        everywhere = hidden @ weight.mean(0)  # the mean of all logits of a row, for a fraction of the work
        excess -= smoothing / weight.shape[0]
        excess[rows, targets] -= 1.0 - smoothing
        ctx.save_for_backward(narrow_hidden, narrow_weight, excess.to(kind))
        return (log_sum - (1.0 - smoothing) * on_target - smoothing * everywhere).sum()

    @staticmethod
    def backward(ctx: Any, *d_loss: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        hidden, weight, excess = ctx.saved_tensors
        of_hidden, of_weight = ctx.kinds
        scale = d_loss[0]
        d_hidden, d_weight = (excess @ weight).to(of_hidden), (excess.T @ hidden).to(of_weight)
        return d_hidden.mul_(scale), d_weight.mul_(scale), None, None, None


def smoothed_cross_entropy(hidden: Tensor, weight: Tensor, targets: Tensor, smoothing: float) -> Tensor:
    """hidden [N, d], weight [V, d], targets [N] -> the sum over N: `F.cross_entropy` of the logits hidden weight^T."""
    device = hidden.device.type
    kind = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype
    with torch.autocast(device, enabled=False):
        return _SmoothedCrossEntropy.apply(hidden, weight, targets, smoothing, kind)  # type: ignore[no-untyped-call,no-any-return]
