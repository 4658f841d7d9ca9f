"""Hugging Face `generate` on the same weights: our pre-norm network is an M2M100, but for its table of positions."""

from collections.abc import Sequence

import torch
from torch import nn
from transformers import GenerationConfig, M2M100Config, M2M100ForConditionalGeneration
from transformers.utils import logging

from bench.peers.peer import MAX_TOKENS, Ids, in_batches
from dragoman.model.batches import pad
from dragoman.model.network_config import TransformerConfig
from dragoman.model.saved import SavedModel
from dragoman.model.tokenizer import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from dragoman.model.transformer import Transformer

BATCHES = (16, 32, 64, 128)
NORMS = {"self_attention_norm": "self_attn_layer_norm", "feed_forward_norm": "final_layer_norm"}
DECODER_NORMS = NORMS | {"cross_attention_norm": "encoder_attn_layer_norm"}


class HuggingFace:
    def __init__(self, model: M2M100ForConditionalGeneration, batch: int = 32, max_tokens: int = MAX_TOKENS) -> None:
        self.name = f"Hugging Face generate, batches of {batch}"
        self._model, self._batch, self._max_tokens = model, batch, max_tokens

    def translate_ids(self, sources: Sequence[Ids], beam_size: int) -> list[Ids]:
        found: list[Ids] = [[] for _ in sources]
        options = _options(beam_size, self._max_tokens)
        for batch in in_batches(sources, self._batch):
            ids = pad([sources[i] for i in batch])  # [B, S]
            with torch.inference_mode():
                results = self._model.generate(ids, attention_mask=(ids != PAD_ID).long(), generation_config=options)
            for i, row in zip(batch, results.tolist(), strict=True):
                found[i] = _generated(row)
        return found


def _options(beam_size: int, max_tokens: int) -> GenerationConfig:
    return GenerationConfig(
        num_beams=beam_size,
        do_sample=False,
        max_new_tokens=max_tokens,
        decoder_start_token_id=BOS_ID,
        bos_token_id=BOS_ID,
        eos_token_id=EOS_ID,
        pad_token_id=PAD_ID,
    )


def _generated(row: list[int]) -> Ids:
    """Without the start, and up to the end."""
    ids = row[1:]
    return ids[: ids.index(EOS_ID)] if EOS_ID in ids else ids


def convert(saved: SavedModel) -> M2M100ForConditionalGeneration:
    """The saved model's tensors in the other's places."""
    if saved.config.norm != "pre":
        raise ValueError("M2M100 is pre-norm; a post-norm network has no place there")
    logging.set_verbosity_error()
    model = M2M100ForConditionalGeneration(_config(saved.config)).eval()
    network = saved.network
    with torch.no_grad():
        model.model.shared.weight.copy_(network.embedding.weight)
        model.tie_weights()
        for theirs, ours in ((model.model.encoder, network.encoder), (model.model.decoder, network.decoder)):
            _copy(theirs.layer_norm, ours.norm)
            for i, layer in enumerate(theirs.layers):
                _layer(layer, ours.layers[i % len(ours.layers)])
            _positions(theirs.embed_positions, network)
    return model


def _config(shape: TransformerConfig) -> M2M100Config:
    return M2M100Config(
        vocab_size=shape.vocab_size,
        max_position_embeddings=shape.max_positions,
        d_model=shape.d_model,
        encoder_layers=shape.encoder_layers,
        decoder_layers=shape.decoder_layers,
        encoder_ffn_dim=shape.d_ff,
        decoder_ffn_dim=shape.d_ff,
        encoder_attention_heads=shape.num_heads,
        decoder_attention_heads=shape.num_heads,
        activation_function="relu",
        scale_embedding=True,
        encoder_layerdrop=0.0,
        decoder_layerdrop=0.0,
        decoder_start_token_id=BOS_ID,
        bos_token_id=BOS_ID,
        eos_token_id=EOS_ID,
        pad_token_id=PAD_ID,
        unk_token_id=UNK_ID,
    )


def _layer(theirs: nn.Module, ours: nn.Module) -> None:
    _projections(theirs.self_attn, ours.self_attention.qkv, "qkv")
    _copy(theirs.self_attn.out_proj, ours.self_attention.out)
    if hasattr(ours, "cross_attention"):
        _copy(theirs.encoder_attn.q_proj, ours.cross_attention.q)
        _projections(theirs.encoder_attn, ours.cross_attention.kv, "kv")
        _copy(theirs.encoder_attn.out_proj, ours.cross_attention.out)
    _copy(theirs.fc1, ours.feed_forward.up)
    _copy(theirs.fc2, ours.feed_forward.down)
    for name, other in (DECODER_NORMS if hasattr(ours, "cross_attention") else NORMS).items():
        _copy(getattr(theirs, other), getattr(ours, name))


def _projections(theirs: nn.Module, packed: nn.Linear, letters: str) -> None:
    parts = zip(letters, packed.weight.chunk(len(letters)), packed.bias.chunk(len(letters)), strict=True)
    for letter, weight, bias in parts:
        target = getattr(theirs, f"{letter}_proj")
        target.weight.copy_(weight)
        target.bias.copy_(bias)


def _copy(theirs: nn.Module, ours: nn.Module) -> None:
    theirs.weight.copy_(ours.weight)
    theirs.bias.copy_(ours.bias)


def _positions(theirs: nn.Module, network: Transformer) -> None:
    """Theirs count from the padding's row on: row PAD_ID + 1 is the first position."""
    table = network.position_table()
    theirs.weights[PAD_ID + 1 : PAD_ID + 1 + len(table)] = table
