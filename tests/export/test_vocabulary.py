"""A smaller output vocabulary writes everything that the model learned to write, and any text at all in bytes."""

from pathlib import Path

import numpy as np

from dragoman.export.vocabulary import output_ids
from dragoman.model.saved import SavedModel
from dragoman.model.tokenizer import EOS_ID, UNK_ID, Tokenizer
from dragoman.service.bundles.manifest import read_golden
from dragoman.service.engine.runner import OrtRunner
from dragoman.service.engine.sessions import OrtSessions
from tests.conftest import export_tiny

TARGETS = ["Good morning!", "See you tomorrow."]


def test_what_was_taught_can_be_written(tiny_tokenizer: Tokenizer) -> None:
    """Every token of every target, the end, and what spells the rest: bytes and placeholders."""
    found = set(output_ids(tiny_tokenizer, TARGETS).tolist())
    assert {token for text in TARGETS for token in tiny_tokenizer.encode(text)} <= found
    assert {EOS_ID, UNK_ID} <= found
    assert {tiny_tokenizer.placeholder_id(number) for number in range(32)} <= found
    assert set(tiny_tokenizer.encode("\u4e2d\u6587")) <= found  # characters it never saw are bytes


def test_ids_are_ascending_whole_blocks_and_fewer(tiny_tokenizer: Tokenizer) -> None:
    """Ties go to the lower id, so their order must be that of the ids."""
    found = output_ids(tiny_tokenizer, TARGETS)
    assert len(found) % 64 == 0
    assert len(found) < tiny_tokenizer.vocab_size
    assert (np.diff(found) > 0).all()


def test_an_exported_bundle_writes_only_these(tiny_saved: SavedModel, few_sentences: Path, tmp_path: Path) -> None:
    """The server finds the real ids again, and knows nothing of columns."""
    target = tmp_path / "target.en"
    target.write_text("\n".join(TARGETS))
    bundle = export_tiny(tiny_saved, tmp_path / "out", "int8", few_sentences, target_texts=(target,), max_loss=100.0)
    allowed = output_ids(tiny_saved.tokenizer, TARGETS)
    assert all(set(golden.target_ids) <= set(allowed.tolist()) for golden in read_golden(bundle))
    runner = OrtRunner(OrtSessions(bundle), 128)
    runner.add([[50, 60, 3]], [0])
    found = runner.step(np.array([2]), len(allowed) // 4, np.array([EOS_ID]))
    assert set(found.ids[0].tolist()) <= set(allowed.tolist())
    assert found.wanted_log_probs is not None
    assert found.wanted_log_probs[0] <= found.log_probs[0, 0]
