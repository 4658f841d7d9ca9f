"""The smallest proof that all of it learns: reversing sequences, where every answer is known."""

from pathlib import Path

import numpy as np
import torch
from rich.console import Console

from dragoman.model.batches import Batches, Direction
from dragoman.model.evaluate import beam, greedy
from dragoman.model.network_config import TransformerConfig
from dragoman.model.saved import SavedModel
from dragoman.model.shards import Corpus, TokenLists
from dragoman.model.tokenizer import EOS_ID, Tokenizer
from dragoman.model.train_options import TrainConfig
from dragoman.model.trainer import Trainer
from dragoman.model.transformer import Transformer
from dragoman.model.workers import Workers

FIRST_LETTER, NUM_LETTERS = 4, 12


def random_words(count: int, seed: int) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [rng.integers(FIRST_LETTER, FIRST_LETTER + NUM_LETTERS, rng.integers(2, 8)).tolist() for _ in range(count)]


def test_a_tiny_model_learns_to_reverse(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """Encoder, decoder, masks, positions, loop and search: any of them broken, and this stays below 100 %."""
    words = random_words(20_000, seed=1)
    unseen = [word for word in random_words(400, seed=2) if word not in words]
    corpus = Corpus(
        TokenLists.of(words), TokenLists.of([word[::-1] for word in words]), np.zeros(len(words), bool), 1.0, None
    )
    way = Direction("forward", "backward", (), 0, swapped=False)
    torch.manual_seed(1)
    config = TransformerConfig(FIRST_LETTER + NUM_LETTERS, 64, 256, 4, 2, 2, dropout=0.0, norm="pre")
    train = TrainConfig(
        batch_tokens=1000, accumulate=1, max_steps=700, peak_lr=3e-3, warmup_steps=80, cooldown_steps=200
    )
    batches = Batches([corpus], [way], train.batch_tokens)
    saved = SavedModel(Transformer(config), tokenizer, [], {})
    trainer = Trainer(tmp_path, saved, batches, batches, [], train, Workers(), Console(quiet=True))
    for group in trainer.groups():
        if trainer.progress.step == train.max_steps:
            break
        trainer.update(group)
    network = trainer.network.eval()
    sources = [[*word, EOS_ID] for word in unseen]
    limits = [12] * len(unseen)
    wanted = [word[::-1] for word in unseen]
    assert len(unseen) > 200
    assert [h.ids for h in greedy(network, sources, limits)] == wanted
    assert [hypotheses[0].ids for hypotheses in beam(network, sources[:40], limits[:40])] == wanted[:40]
