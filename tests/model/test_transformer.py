"""The network is the paper's: it equals torch's own layers, and its masks leak nothing."""

import pytest
import torch
from torch import Tensor, nn

from dragoman.model.network_config import TransformerConfig, preset
from dragoman.model.tokenizer import PAD_ID
from dragoman.model.transformer import DecoderLayer, EncoderLayer, Transformer, causal_mask

SMALL = {"vocab_size": 50, "d_model": 32, "d_ff": 64, "num_heads": 4, "encoder_layers": 2, "decoder_layers": 2}


def network(**changes: object) -> Transformer:
    torch.manual_seed(0)
    return Transformer(TransformerConfig(**{**SMALL, **changes})).eval()  # type: ignore[arg-type]


def copy_linear(ours: nn.Linear, weight: Tensor, bias: Tensor) -> None:
    ours.weight.data, ours.bias.data = weight.clone(), bias.clone()


def copy_shared(ours: EncoderLayer | DecoderLayer, theirs: nn.Module) -> None:
    copy_linear(ours.self_attention.qkv, theirs.self_attn.in_proj_weight, theirs.self_attn.in_proj_bias)
    copy_linear(ours.self_attention.out, theirs.self_attn.out_proj.weight, theirs.self_attn.out_proj.bias)
    copy_linear(ours.feed_forward.up, theirs.linear1.weight, theirs.linear1.bias)
    copy_linear(ours.feed_forward.down, theirs.linear2.weight, theirs.linear2.bias)
    ours.self_attention_norm.load_state_dict(theirs.norm1.state_dict())


def randomize_norms(module: nn.Module) -> None:
    for part in module.modules():
        if isinstance(part, nn.LayerNorm):
            nn.init.normal_(part.weight, 1.0, 0.3)
            nn.init.normal_(part.bias, 0.0, 0.3)


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_encoder_equals_torch(norm: str) -> None:
    """Same weights, same numbers: our encoder is nn.TransformerEncoder, padding included."""
    ours = network(norm=norm)
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True, norm_first=norm == "pre")
    theirs = nn.TransformerEncoder(layer, 2, norm=None, enable_nested_tensor=False).eval()
    randomize_norms(theirs)
    for mine, other in zip(ours.encoder.layers, theirs.layers, strict=True):
        copy_shared(mine, other)
        mine.feed_forward_norm.load_state_dict(other.norm2.state_dict())
    ours.encoder.norm = None  # torch's stack has none unless it is asked for
    x, real = torch.randn(3, 7, 32), torch.arange(7)[None] < torch.tensor([7, 4, 2])[:, None]
    got = ours.encoder(x, real[:, None, None, :])
    want = theirs(x, src_key_padding_mask=~real)
    torch.testing.assert_close(got[real], want[real], atol=1e-5, rtol=0)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_decoder_equals_torch(norm: str) -> None:
    """Causal self-attention, cross-attention over a padded memory, feed-forward: nn.TransformerDecoder."""
    ours = network(norm=norm)
    layer = nn.TransformerDecoderLayer(32, 4, 64, dropout=0.1, batch_first=True, norm_first=norm == "pre")
    theirs = nn.TransformerDecoder(layer, 2, norm=None).eval()
    randomize_norms(theirs)
    for mine, other in zip(ours.decoder.layers, theirs.layers, strict=True):
        copy_shared(mine, other)
        weight, bias = other.multihead_attn.in_proj_weight, other.multihead_attn.in_proj_bias
        copy_linear(mine.cross_attention.q, weight[:32], bias[:32])
        copy_linear(mine.cross_attention.kv, weight[32:], bias[32:])
        out = other.multihead_attn.out_proj
        copy_linear(mine.cross_attention.out, out.weight, out.bias)
        mine.cross_attention_norm.load_state_dict(other.norm2.state_dict())
        mine.feed_forward_norm.load_state_dict(other.norm3.state_dict())
    ours.decoder.norm = None
    x, memory = torch.randn(3, 5, 32), torch.randn(3, 7, 32)
    real = torch.arange(7)[None] < torch.tensor([7, 4, 2])[:, None]
    got = ours.decoder(x, memory, real[:, None, None, :])
    want = theirs(x, memory, tgt_mask=~causal_mask(5), memory_key_padding_mask=~real)
    torch.testing.assert_close(got, want, atol=1e-5, rtol=0)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_a_position_does_not_see_later_tokens(norm: str) -> None:
    """The gradient of position t with respect to a later embedding is exactly zero."""
    model = network(norm=norm)
    x = torch.randn(1, 6, 32, requires_grad=True)
    out = model.decoder(x, torch.randn(1, 4, 32), None)[0, 2]
    (out * torch.randn(32)).sum().backward()  # a norm's plain sum is constant
    assert x.grad is not None
    assert (x.grad[0, 3:] == 0).all()
    assert (x.grad[0, :3] != 0).any(dim=1).all()


def test_padding_of_the_source_is_not_seen() -> None:
    """What stands behind a source's end has gradient zero and changes nothing."""
    model = network()
    x = torch.randn(1, 6, 32, requires_grad=True)
    real = torch.tensor([[True, True, True, True, False, False]])[:, None, None, :]
    memory = model.encoder(x, real)
    (model.decoder(torch.randn(1, 3, 32), memory, real) * torch.randn(32)).sum().backward()  # a norm's sum is constant
    assert x.grad is not None
    assert (x.grad[0, 4:] == 0).all()
    assert (x.grad[0, :4] != 0).any(dim=1).all()


def test_padded_and_unpadded_sources_give_the_same() -> None:
    """A batch is a convenience: each sentence means the same alone."""
    model = network()
    long, short = torch.randint(4, 50, (1, 9)), torch.randint(4, 50, (1, 5))
    target = torch.randint(4, 50, (2, 4))
    padded = torch.cat([long, torch.nn.functional.pad(short, (0, 4), value=PAD_ID)])
    together = model(padded, target)
    torch.testing.assert_close(together[1], model(short, target[1:])[0], atol=1e-5, rtol=0)


def test_shared_layers_are_one_layer_used_many_times() -> None:
    """The Universal Transformer idea: a sixth of the weights, the same depth."""
    shared, own = network(share_layers=True), network()
    assert len(shared.encoder.layers) == 1
    assert shared.encoder.depth == 2
    assert sum(p.numel() for p in shared.parameters()) < sum(p.numel() for p in own.parameters())
    x = torch.randn(1, 5, 32)
    layer = shared.encoder.layers[0]
    torch.testing.assert_close(shared.encoder(x, None), layer(layer(x, None), None))


def test_learned_positions_are_parameters_and_sinusoids_are_not() -> None:
    """A learned table is trained and saved; the formula needs no space in a file."""
    assert "positions.weight" in network(positions="learned").state_dict()
    assert not any("sinusoids" in name for name in network().state_dict())


def test_output_layer_is_the_embedding() -> None:
    """Tied as in the paper: one matrix for source, target and logits."""
    model = network()
    hidden = torch.randn(2, 32)
    torch.testing.assert_close(model.logits(hidden), hidden @ model.embedding.weight.T)


def test_small_preset_has_about_nine_million_parameters() -> None:
    """The size that we ship."""
    count = sum(p.numel() for p in Transformer(preset("small")).parameters())
    assert 8.5e6 < count < 9.5e6


@pytest.mark.parametrize(
    "changes", [{"d_model": 30}, {"num_heads": 0}, {"dropout": 1.0}, {"norm": "middle"}, {"positions": "rotary"}]
)
def test_impossible_configurations_are_refused(changes: dict[str, object]) -> None:
    """A wrong number is an error at once, not a crash an hour later."""
    with pytest.raises((ValueError, ZeroDivisionError)):
        network(**changes)
