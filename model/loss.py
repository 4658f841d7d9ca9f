"""The loss of a Transformer: cross-entropy over the vocabulary with label smoothing, its gradient made along with it.

torch's own keeps the logarithms of all probabilities, and walks over them for either half of a smoothed loss, forth and
back. The gradient is nothing but the probabilities less what was wanted: it is made where the logits lie, some rows at
a time, so that they stay in the cache. Under autocast the three products are computed in its type, and everything
between them in the type of the hidden states.
"""

import math
from typing import Any

import torch
from torch import Tensor

ROWS_AT_ONCE = 32  # of V logits each: 2 MB in single precision for 16,000 pieces


class _SmoothedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        targets: Tensor,
        smoothing: float,
        kind: torch.dtype,
        raised: Tensor | None,
    ) -> Tensor:
        narrow_hidden, narrow_weight = hidden.to(kind), weight.to(kind)
        logits = narrow_hidden @ narrow_weight.T  # [N, V]
        on_target = torch.empty(len(targets), dtype=hidden.dtype)
        overall = torch.empty(len(targets), dtype=hidden.dtype)  # the mean of a row's logarithms
        for rows, wanted, likely, mean in zip(
            *(tensor.split(ROWS_AT_ONCE) for tensor in (logits, targets, on_target, overall)), strict=True
        ):
            wide = rows.to(hidden.dtype)
            logarithms = torch.log_softmax(wide if raised is None else wide.add_(raised), 1)
            likely.copy_(logarithms.gather(1, wanted[:, None])[:, 0])
            torch.mean(logarithms, 1, out=mean)
            excess = logarithms.exp_().sub_(smoothing / weight.shape[0])
            excess.scatter_add_(1, wanted[:, None], excess.new_full((len(wanted), 1), smoothing - 1.0))
            rows.copy_(excess)  # the gradient of the loss for the logits, from here on
        ctx.kinds = hidden.dtype, weight.dtype
        ctx.save_for_backward(narrow_hidden, narrow_weight, logits)
        return -((1.0 - smoothing) * on_target + smoothing * overall).sum()

    @staticmethod
    def backward(ctx: Any, *d_loss: Tensor) -> tuple[Tensor, Tensor, None, None, None, None]:
        hidden, weight, excess = ctx.saved_tensors
        of_hidden, of_weight = ctx.kinds
        scale = d_loss[0]
        d_hidden, d_weight = (excess @ weight).to(of_hidden), (excess.T @ hidden).to(of_weight)
        return d_hidden.mul_(scale), d_weight.mul_(scale), None, None, None, None


def sampled_cross_entropy(hidden: Tensor, weight: Tensor, targets: Tensor, smoothing: float, others: int) -> Tensor:
    """The loss over the pieces that appear among the targets and as many `others`, drawn at random.

    A third of an update's products are logits of pieces that are nowhere near. The pieces that were drawn stand for all
    that were not: their logits are raised by the logarithm of how many each stands for, so that the sum over all pieces
    is right on average. Pieces that come often are targets of nearly every pass, and are not left to chance.
    """
    wanted, places = targets.unique(return_inverse=True)  # [U], [N]
    rest = torch.ones(len(weight), dtype=torch.bool).index_fill_(0, wanted, False).nonzero()[:, 0]
    if others >= len(rest):
        return smoothed_cross_entropy(hidden, weight, targets, smoothing)
    drawn = rest[torch.randperm(len(rest))[:others]]
    raised = hidden.new_zeros(len(wanted) + others)
    raised[len(wanted) :] = math.log(len(rest) / others)
    some = weight.index_select(0, torch.cat([wanted, drawn]))  # [U + others, d]
    return smoothed_cross_entropy(hidden, some, places, smoothing, raised)


def smoothed_cross_entropy(
    hidden: Tensor, weight: Tensor, targets: Tensor, smoothing: float, raised: Tensor | None = None
) -> Tensor:
    """hidden [N, d], weight [V, d], targets [N] -> the sum over N: `F.cross_entropy` of the logits hidden weight^T.

    `raised` [V] is added to every row of logits.
    """
    device = hidden.device.type
    kind = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype
    with torch.autocast(device, enabled=False):
        return _SmoothedCrossEntropy.apply(hidden, weight, targets, smoothing, kind, raised)  # type: ignore[no-untyped-call,no-any-return]
