"""The Transformer of "Attention Is All You Need", all of it, on one page.

Shapes: B sentences, S source tokens, T target tokens, d = d_model, H heads of dh = d / H, V vocabulary.
Masks are True where attention may look. Decoding loops live in `evaluate.py`, training in `train.py`.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dragoman.model.dropout import Dropout
from dragoman.model.network_config import TransformerConfig
from dragoman.model.tokenizer import PAD_ID


def sinusoids(length: int, d_model: int) -> Tensor:
    """PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i+1) = cos of the same angle."""
    position = torch.arange(length, dtype=torch.float64)[:, None]
    angle = position / 10000 ** (torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)  # [length, d/2]
    return torch.stack([angle.sin(), angle.cos()], dim=2).reshape(length, d_model).float()  # [length, d]


def attention_weights(query: Tensor, key: Tensor, mask: Tensor | None = None) -> Tensor:
    """softmax(Q K^T / sqrt(dh)): what `attend` uses inside its fused kernel, in the open."""
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])  # [..., T, S]
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    return scores.softmax(dim=-1)


def attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, causal: bool = False) -> Tensor:
    """attention_weights(Q, K) V, in one kernel that never writes the weights down.

    Never in bfloat16, which autocast would choose: torch's kernel goes back through it five times slower on a CPU.
    """
    if query.dtype == torch.bfloat16:
        query, key, value = query.float(), key.float(), value.float()
    with torch.autocast(query.device.type, enabled=False):
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=causal)


def causal_mask(length: int) -> Tensor:
    """[T, T], True where column <= row: a word sees itself and what came before."""
    return torch.ones(length, length, dtype=torch.bool).tril()


class SelfAttention(nn.Module):
    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.num_heads = config.num_heads
        self.qkv = nn.Linear(config.d_model, 3 * config.d_model)
        self.out = nn.Linear(config.d_model, config.d_model)

    def heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        batch, length, width = x.shape
        packed = self.qkv(x).view(batch, length, 3, self.num_heads, width // self.num_heads)
        query, key, value = packed.permute(2, 0, 3, 1, 4)  # each [B, H, T, dh]
        return query, key, value

    def forward(self, x: Tensor, mask: Tensor | None, causal: bool = False) -> Tensor:
        return self.out(merge_heads(attend(*self.heads(x), mask=mask, causal=causal)))


class CrossAttention(nn.Module):
    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.num_heads = config.num_heads
        self.q = nn.Linear(config.d_model, config.d_model)
        self.kv = nn.Linear(config.d_model, 2 * config.d_model)
        self.out = nn.Linear(config.d_model, config.d_model)

    def query_heads(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        return self.q(x).view(batch, length, self.num_heads, width // self.num_heads).transpose(1, 2)

    def key_value_heads(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        batch, length, width = memory.shape
        packed = self.kv(memory).view(batch, length, 2, self.num_heads, width // self.num_heads)
        key, value = packed.permute(2, 0, 3, 1, 4)  # each [B, H, S, dh]
        return key, value

    def forward(self, x: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        return self.out(merge_heads(attend(self.query_heads(x), key, value, mask=mask)))


def merge_heads(x: Tensor) -> Tensor:
    return x.transpose(1, 2).flatten(2)  # [B, H, T, dh] -> [B, T, d]


class FeedForward(nn.Module):
    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.up = nn.Linear(config.d_model, config.d_ff)
        self.down = nn.Linear(config.d_ff, config.d_model)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.relu(self.up(x)))


class Layer(nn.Module):
    """What encoder and decoder layers share: how a sublayer, its residual and its norm go together."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.pre_norm = config.norm == "pre"
        self.dropout = Dropout(config.dropout)
        self.self_attention = SelfAttention(config)
        self.self_attention_norm = nn.LayerNorm(config.d_model)
        self.feed_forward = FeedForward(config)
        self.feed_forward_norm = nn.LayerNorm(config.d_model)

    def before(self, norm: nn.LayerNorm, x: Tensor) -> Tensor:
        return norm(x) if self.pre_norm else x

    def after(self, norm: nn.LayerNorm, x: Tensor, change: Tensor) -> Tensor:
        x = x + self.dropout(change)
        return x if self.pre_norm else norm(x)


class EncoderLayer(Layer):
    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        norm = self.self_attention_norm
        x = self.after(norm, x, self.self_attention(self.before(norm, x), mask))
        norm = self.feed_forward_norm
        return self.after(norm, x, self.feed_forward(self.before(norm, x)))


class DecoderLayer(Layer):
    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config)
        self.cross_attention = CrossAttention(config)
        self.cross_attention_norm = nn.LayerNorm(config.d_model)

    def forward(self, x: Tensor, memory: Tensor, memory_mask: Tensor | None) -> Tensor:
        norm = self.self_attention_norm
        # Padding stands at the end of a target, so the causal mask alone already hides it from real tokens.
        x = self.after(norm, x, self.self_attention(self.before(norm, x), None, causal=True))
        norm = self.cross_attention_norm
        key, value = self.cross_attention.key_value_heads(memory)
        x = self.after(norm, x, self.cross_attention(self.before(norm, x), key, value, memory_mask))
        norm = self.feed_forward_norm
        return self.after(norm, x, self.feed_forward(self.before(norm, x)))


class Stack(nn.Module):
    """N layers; with shared layers, one layer N times. Pre-norm ends in a norm of its own, post-norm does not."""

    def __init__(self, config: TransformerConfig, layer: type[Layer], depth: int) -> None:
        super().__init__()
        self.depth = depth
        self.layers = nn.ModuleList(layer(config) for _ in range(1 if config.share_layers else depth))
        self.norm = nn.LayerNorm(config.d_model) if config.norm == "pre" else None

    def forward(self, x: Tensor, *context: Tensor | None) -> Tensor:
        for i in range(self.depth):
            x = self.layers[i % len(self.layers)](x, *context)
        return x if self.norm is None else self.norm(x)


class Transformer(nn.Module):
    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.d_model)  # source, target and output share it
        if config.positions == "learned":
            self.positions = nn.Embedding(config.max_positions, config.d_model)
        else:
            self.register_buffer("sinusoids", sinusoids(config.max_positions, config.d_model), persistent=False)
        self.encoder = Stack(config, EncoderLayer, config.encoder_layers)
        self.decoder = Stack(config, DecoderLayer, config.decoder_layers)
        self.dropout = Dropout(config.dropout)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)
        # Scaled by sqrt(d) on the way in, an embedding should have unit variance there; tied, it also makes the logits.
        nn.init.normal_(self.embedding.weight, std=self.config.d_model**-0.5)

    def position_table(self) -> Tensor:
        return self.positions.weight if self.config.positions == "learned" else self.sinusoids

    def embed(self, ids: Tensor, start: int = 0) -> Tensor:
        scaled = self.embedding(ids) * math.sqrt(self.config.d_model)  # [B, T, d]
        return self.dropout(scaled + self.position_table()[start : start + ids.shape[1]])

    def encode(self, source: Tensor, mask: Tensor | None) -> Tensor:
        """source [B, S], mask [B, 1, 1, S] or None when nothing is padded -> memory [B, S, d]"""
        return self.encoder(self.embed(source), mask)

    def decode(self, target: Tensor, memory: Tensor, mask: Tensor | None) -> Tensor:
        """target [B, T] (all known tokens), memory [B, S, d] -> hidden [B, T, d]"""
        return self.decoder(self.embed(target), memory, mask)

    def logits(self, hidden: Tensor) -> Tensor:
        return F.linear(hidden, self.embedding.weight)  # [..., V]

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """source [B, S], target [B, T] -> hidden [B, T, d]; `logits` of the rows that count is the caller's."""
        mask = source_mask(source)
        return self.decode(target, self.encode(source, mask), mask)


def source_mask(source: Tensor) -> Tensor | None:
    """[B, 1, 1, S], True at real tokens; None when nothing is padded, which lets the fused kernel skip the mask."""
    real = source != PAD_ID
    return None if bool(real.all()) else real[:, None, None, :]
