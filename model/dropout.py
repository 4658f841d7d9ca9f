"""Dropout from eight random bits an element: on a CPU, drawing a float for each costs three times as much.

The rate is therefore a multiple of 1/256 (0.1 becomes 26/256), and what is kept is scaled by exactly that rate.
"""

import torch
from torch import Tensor, nn

BYTE = 256
LOWEST_INT64 = -(2**63)


class Dropout(nn.Module):
    def __init__(self, rate: float) -> None:
        super().__init__()
        self.dropped = min(round(rate * BYTE), BYTE - 1)  # of the values that a byte may have

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or not self.dropped:
            return x
        words = torch.empty(-(-x.numel() // 8), dtype=torch.int64, device=x.device).random_(LOWEST_INT64, None)
        kept = words.view(torch.uint8)[: x.numel()].view(x.shape) >= self.dropped
        # The factor in single precision: bfloat16 would round it, and training would differ from what is served.
        return x * kept.float().mul_(BYTE / (BYTE - self.dropped))
