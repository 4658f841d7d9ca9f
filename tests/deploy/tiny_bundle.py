"""`python -m tests.deploy.tiny_bundle DIR`: a directory with one small, untrained, really exported bundle.

For checks of containers and proxies, which need a bundle that loads and answers, not one that translates well.
"""

import csv
import sys
import tempfile
from pathlib import Path

from model.saved import SavedModel
from model.tokenizer import Tokenizer, train_tokenizer
from tests.conftest import SENTENCES, export_tiny, random_network, tiny_config


def few_sentences(folder: Path) -> Path:
    header, *rows = SENTENCES.read_text("utf-8").splitlines()
    path = folder / "few.tsv"
    path.write_text("\n".join([header, *rows[::8]]) + "\n", "utf-8")
    return path


def write_tiny_bundle(directory: Path) -> None:
    with SENTENCES.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    lines = [row[language] for row in rows for language in ("pt", "en")]
    tokenizer = Tokenizer(train_tokenizer(lines, vocab_size=480, languages=("pt", "en")))
    pairs = [{"source": "pt", "target": "en", "source_prefix_ids": []}]
    saved = SavedModel(random_network(tiny_config()), tokenizer, pairs, {"note": "random"})
    with tempfile.TemporaryDirectory(dir=directory.parent) as folder:
        export_tiny(saved, Path(folder) / "pt-en", "int8", few_sentences(Path(folder)))
        directory.mkdir(exist_ok=True)
        (Path(folder) / "pt-en").rename(directory / "pt-en")


if __name__ == "__main__":
    write_tiny_bundle(Path(sys.argv[1]))
