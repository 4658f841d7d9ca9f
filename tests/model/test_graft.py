"""A network that begins from another one's weights knows what that one knew."""

import dataclasses

import pytest
import torch

from dragoman.model.graft import graft
from dragoman.model.network_config import TransformerConfig
from dragoman.model.saved import SavedModel, SavedModelError
from dragoman.model.tokenizer import Tokenizer, train_tokenizer
from dragoman.model.transformer import Transformer
from tests.model.test_transformer import SMALL


@pytest.fixture
def old(tokenizer: Tokenizer) -> SavedModel:
    torch.manual_seed(1)
    config = TransformerConfig(**{**SMALL, "vocab_size": tokenizer.vocab_size})  # type: ignore[arg-type]
    return SavedModel(Transformer(config).eval(), tokenizer, [], {})


def test_wider_layers_compute_the_same_at_first(old: SavedModel) -> None:
    """New units have no say yet; they learn one, because what feeds them is random."""
    wider = dataclasses.replace(old.config, d_ff=2 * old.config.d_ff)
    network = graft(old, old.tokenizer, wider).eval()
    source, target = torch.randint(40, 80, (2, 9)), torch.randint(40, 80, (2, 7))
    assert torch.allclose(network(source, target), old.network(source, target), atol=1e-5)
    up = network.encoder.layers[0].feed_forward.up.weight[old.config.d_ff :]
    assert up.std() > 0.01


def test_new_pieces_begin_as_the_mean_of_what_spells_them(old: SavedModel, sentence_pairs: list) -> None:
    """A piece that both know is copied, control symbols and bytes are found by name."""
    lines = [side for pair in sentence_pairs for side in pair]
    larger = Tokenizer(train_tokenizer(lines, old.tokenizer.vocab_size + 200, ["pt", "en"]))
    network = graft(old, larger, dataclasses.replace(old.config, vocab_size=larger.vocab_size))
    was, now = old.network.embedding.weight, network.embedding.weight
    for i in range(larger.vocab_size):
        assert torch.allclose(now[i], was[old.tokenizer.spell(larger.piece(i))].mean(0))
    for symbol in ("<to:en>", "<machine>", "<ph:7>", "<0x41>"):
        assert torch.equal(now[larger.symbol_id(symbol)], was[old.tokenizer.symbol_id(symbol)])
    several = [i for i in range(larger.vocab_size) if len(old.tokenizer.spell(larger.piece(i))) > 1]
    assert len(several) > 50


def test_another_shape_is_refused(old: SavedModel) -> None:
    """Nothing sensible could be kept of a network of another width or depth."""
    for change in ({"d_model": 64}, {"encoder_layers": 5}, {"d_ff": old.config.d_ff // 2}):
        with pytest.raises(SavedModelError, match="wider feed-forward layers, nothing else"):
            graft(old, old.tokenizer, dataclasses.replace(old.config, **change))
