"""Small real things to train with: our own sentences, the tokenizer learned from them, files of both."""

import csv
from pathlib import Path

import pytest
import torch

from dragoman.model.tokenizer import Tokenizer
from tests.data.make_tokenizers import path_of

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
def tokenizer() -> Tokenizer:
    return Tokenizer(path_of(900).read_bytes())


@pytest.fixture
def corpus_files(tmp_path: Path, sentence_pairs: list[tuple[str, str]]) -> tuple[Path, Path]:
    files = tmp_path / "text.pt", tmp_path / "text.en"
    for side, path in enumerate(files):
        path.write_text("".join(pair[side] + "\n" for pair in sentence_pairs), encoding="utf-8")
    return files
