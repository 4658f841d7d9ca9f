"""What a network looks like and how it is trained: two frozen dataclasses, checked once, and the presets."""

from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

NormPlacement = Literal["pre", "post"]
PositionKind = Literal["sinusoidal", "learned"]
OptimizerKind = Literal["adam", "muon"]
Precision = Literal["fp32", "bf16"]


@dataclass(frozen=True)
class TransformerConfig:
    vocab_size: int = 8000
    d_model: int = 512
    d_ff: int = 2048
    num_heads: int = 8
    encoder_layers: int = 6
    decoder_layers: int = 6
    dropout: float = 0.1
    norm: NormPlacement = "post"
    positions: PositionKind = "sinusoidal"
    max_positions: int = 512
    share_layers: bool = False  # the Universal Transformer idea: one layer's weights, used N times

    def __post_init__(self) -> None:
        if self.d_model % self.num_heads:
            raise ValueError(f"d_model ({self.d_model}) must be a multiple of num_heads ({self.num_heads})")
        if self.d_model % 2:
            raise ValueError(f"d_model ({self.d_model}) must be even: positions pair a sine with a cosine")
        for name in ("vocab_size", "d_model", "d_ff", "num_heads", "encoder_layers", "decoder_layers", "max_positions"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be in [0, 1), not {self.dropout}")
        if self.norm not in ("pre", "post"):
            raise ValueError(f"norm must be 'pre' or 'post', not {self.norm!r}")
        if self.positions not in ("sinusoidal", "learned"):
            raise ValueError(f"positions must be 'sinusoidal' or 'learned', not {self.positions!r}")

    @property
    def head_dim(self) -> int:
        return self.d_model // self.num_heads

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


PRESETS: dict[str, TransformerConfig] = {
    "tiny": TransformerConfig(d_model=128, d_ff=512, num_heads=4, encoder_layers=4, decoder_layers=4, norm="pre"),
    # Deep encoder, shallow decoder: the encoder runs once a sentence, the decoder once a token.
    "small": TransformerConfig(d_model=256, d_ff=1024, num_heads=4, encoder_layers=6, decoder_layers=2, norm="pre"),
    # As many weights in a layer as the Firefox students have: what 16,000 pieces and general text need.
    "student": TransformerConfig(
        vocab_size=16000, d_model=256, d_ff=1536, num_heads=4, encoder_layers=6, decoder_layers=2, norm="pre"
    ),
    "base": TransformerConfig(vocab_size=32000),
    "big": TransformerConfig(vocab_size=32000, d_model=1024, d_ff=4096, num_heads=16, dropout=0.3),
}


def preset(name: str, **changes: Any) -> TransformerConfig:
    if name not in PRESETS:
        raise ValueError(f"there is no preset {name!r}; choose one of {', '.join(PRESETS)}")
    return replace(PRESETS[name], **changes)


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
