"""A translation as a search returns it, its score, and how long it may grow: shared by every search, without torch."""

from collections.abc import Sequence
from dataclasses import dataclass

DEFAULT_ALPHA = 0.6


@dataclass(frozen=True)
class Hypothesis:
    ids: list[int]  # without bos and eos
    log_probs: list[float]  # of every generated token, eos included
    score: float
    finished: bool  # ended by eos, not by the limit


def length_penalty(num_tokens: int, alpha: float) -> float:
    return float(((5 + num_tokens) / 6) ** alpha)


def default_limit(source: Sequence[int], config_limit: int = 512) -> int:
    return min(3 * len(source) + 10, config_limit - 1)
