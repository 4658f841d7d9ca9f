"""How a network is trained: every option of `dragoman-train` that is not about files, declared and checked once."""

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

OptimizerKind = Literal["adam", "muon"]
Precision = Literal["fp32", "bf16"]


def option(default: Any, text: str) -> Any:
    """A field that `dragoman-train` offers as an option, with the help that it prints."""
    return field(default=default, metadata={"help": text})


@dataclass(frozen=True)
class TrainConfig:
    batch_tokens: int = option(2500, "source and target tokens of one forward pass, padding included")
    accumulate: int = option(2, "forward passes per update, of each process")
    max_steps: int = option(100_000, "updates to make")
    optimizer: OptimizerKind = option("adam", "adam, or muon for the matrices of the layers")  # noqa: RUF009
    precision: Precision = option("fp32", "of products; bf16 for CPUs that have AVX512-BF16")  # noqa: RUF009
    peak_lr: float = option(2e-3, "the highest learning rate")
    warmup_steps: int = option(1000, "updates until the rate is at its peak")
    decay_from: int = option(0, "the rate stays at its peak up to this update; 0: it falls after the warm-up")
    cooldown_steps: int = option(0, "last updates of the run, over which the rate falls linearly to zero")
    label_smoothing: float = 0.1
    sampled_pieces: int = option(0, "pieces drawn for the loss beside the targets; 0: the loss is over all pieces")
    clip_norm: float = 1.0
    seed: int = option(1, "of everything random")
    validate_every: int = option(500, "updates between two validations")
    checkpoint_seconds: float = option(240.0, "between two checkpoints: what a crash may cost")
    scored_sentences: int = option(200, "of --valid, translated for BLEU at every validation; 0: none")
    patience: int = option(20, "validations without a better loss before the run stops")
    average: int = option(5, "best checkpoints that are kept, and averaged as one candidate for the model")
    average_decay: float = option(0.998, "of the running average of the weights, another candidate")
    join_fraction: float = option(0.1, "share of the pairs that are joined with others into longer ones")
    placeholder_fraction: float = option(0.05, "share of the pairs that carry placeholders")
    max_tokens: int = option(120, "pairs with more tokens on a side are left out")

    def __post_init__(self) -> None:
        for name in (
            "batch_tokens",
            "accumulate",
            "max_steps",
            "warmup_steps",
            "validate_every",
            "patience",
            "average",
            "max_tokens",
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.sampled_pieces < 0:
            raise ValueError(f"sampled_pieces must be at least 0, which takes all, not {self.sampled_pieces}")
        if self.scored_sentences < 0:
            raise ValueError(f"scored_sentences must be at least 0, which skips BLEU, not {self.scored_sentences}")
        for name in ("label_smoothing", "join_fraction", "placeholder_fraction", "average_decay"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must be in [0, 1), not {getattr(self, name)}")

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)
