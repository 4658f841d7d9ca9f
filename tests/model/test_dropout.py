"""Dropout drops what it says, keeps the mean, and is the same for the same seed."""

import pytest
import torch

from dragoman.model.dropout import Dropout


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("rate", "dropped"), [(0.1, 26 / 256), (0.3, 77 / 256), (0.5, 0.5), (0.999, 255 / 256)])
def test_it_drops_its_share_and_scales_the_rest(rate: float, dropped: float, kind: torch.dtype) -> None:
    """By exactly that share, also of coarse numbers: what is learned must fit what is served."""
    torch.manual_seed(1)
    x = torch.ones(1000, 301, dtype=kind, requires_grad=True)
    y = Dropout(rate)(x)
    kept = y != 0
    assert abs(float((~kept).float().mean()) - dropped) < 0.005
    torch.testing.assert_close(y[kept], torch.full_like(y[kept], 1 / (1 - dropped), dtype=torch.float32))
    y.sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad != 0, kept)  # what was dropped gets no gradient


def test_every_place_in_a_word_is_dropped_alike() -> None:
    """Bytes are cut out of words of 64 bits: the one with the sign must be as random as the others."""
    torch.manual_seed(1)
    kept = Dropout(0.5)(torch.ones(8 * 40_000)).view(-1, 8) != 0
    assert ((kept.float().mean(0) - 0.5).abs() < 0.01).all()


def test_a_seed_decides_and_evaluation_drops_nothing() -> None:
    dropout, x = Dropout(0.1), torch.ones(77)
    first, second = (dropout(x) for _ in range(2) if torch.manual_seed(7))
    assert torch.equal(first, second)
    assert not torch.equal(first, dropout(x))
    assert torch.equal(dropout.eval()(x), x)
    assert torch.equal(Dropout(0.0)(x), x)
