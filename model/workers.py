"""The processes that train together. Started by torchrun, or alone; the loop does not know which."""

import os
from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist

from dragoman.model.transformer import Transformer

TOKENIZING_HOURS = 6  # the others wait while the first process tokenizes


class Workers:
    """The processes that train together; alone when not started by torchrun."""

    def __init__(self) -> None:
        self.size, self.rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
        if self.size > 1 and not dist.is_initialized():
            dist.init_process_group(
                "nccl" if torch.cuda.is_available() else "gloo", timeout=timedelta(hours=TOKENIZING_HOURS)
            )

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def sum_gradients(self, network: Transformer, *totals: float) -> list[float]:
        """Add up everyone's gradients in place, and a few numbers along with them, in one message."""
        if self.size == 1:
            return list(totals)
        parameters = [p for p in network.parameters() if p.grad is not None]
        flat = torch.cat([p.grad.flatten() for p in parameters] + [torch.tensor(totals)])  # type: ignore[union-attr]
        dist.all_reduce(flat)
        position = 0
        for p in parameters:
            p.grad.copy_(flat[position : position + p.numel()].view_as(p))  # type: ignore[union-attr]
            position += p.numel()
        return [float(total) for total in flat[position:]]

    def spread(self, work: Callable[[torch.Tensor], torch.Tensor], items: torch.Tensor) -> torch.Tensor:
        """work(items), items along the first dimension: each process does its share, and all get everything."""
        if self.size == 1:
            return work(items)
        first, end = (len(items) * rank // self.size for rank in (self.rank, self.rank + 1))
        done = torch.zeros_like(items)
        if first < end:
            done[first:end] = work(items[first:end])
        dist.all_reduce(done)  # the others' are zero here
        return done

    def gather(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """Everyone's, in the order of ranks; the same shape everywhere."""
        if self.size == 1:
            return [tensor]
        everyones = [torch.empty_like(tensor) for _ in range(self.size)]
        dist.all_gather(everyones, tensor)
        return everyones

    def wait(self) -> None:
        """Until all have come this far."""
        if self.size > 1:
            dist.barrier()

    def part(self) -> None:
        """When all is done: a process that ends with others still listening to it is sometimes taken for a crash.

        The barrier, because the first has a model to write when the others have nothing left to do: without it they
        took their ends of the connections away under its hands, and some runs that had succeeded ended in SIGABRT.
        """
        if self.size > 1:
            dist.barrier()
            dist.destroy_process_group()

    def share(self, number: int) -> int:
        """What the first process says, to all."""
        if self.size == 1:
            return number
        message = torch.tensor(number)
        dist.broadcast(message, 0)
        return int(message)
