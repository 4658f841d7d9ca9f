"""What a network looks like: a frozen dataclass, checked once, and the presets."""

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

NormPlacement = Literal["pre", "post"]
PositionKind = Literal["sinusoidal", "learned"]


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
