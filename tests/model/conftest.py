"""Small real things to train with: our own sentences, a tokenizer learned from them, a reversing corpus."""

import csv
from pathlib import Path

import pytest
import torch

from model.tokenizer import Tokenizer, train_tokenizer

SENTENCES = Path(__file__).parents[1] / "data" / "sentences.tsv"


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def sentence_pairs() -> list[tuple[str, str]]:
    with SENTENCES.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        return [(row["pt"], row["en"]) for row in rows]


@pytest.fixture(scope="session")
def tokenizer(sentence_pairs: list[tuple[str, str]]) -> Tokenizer:
    return Tokenizer(train_tokenizer([side for pair in sentence_pairs for side in pair], 900, ["en", "pt"]))


@pytest.fixture
def corpus_files(tmp_path: Path, sentence_pairs: list[tuple[str, str]]) -> tuple[Path, Path]:
    files = tmp_path / "text.pt", tmp_path / "text.en"
    for side, path in enumerate(files):
        path.write_text("".join(pair[side] + "\n" for pair in sentence_pairs), encoding="utf-8")
    return files
