"""`python -m tests.deploy.tiny_bundle DIR`: a directory with one small, untrained, really exported bundle.

For checks of containers and proxies, which need a bundle that loads and answers, not one that translates well.
"""

import sys
import tempfile
from pathlib import Path

from dragoman.model.saved import SavedModel
from dragoman.model.tokenizer import Tokenizer
from tests.conftest import SENTENCES, export_tiny, random_network, tiny_config
from tests.data.make_tokenizers import path_of


def few_sentences(folder: Path) -> Path:
    header, *rows = SENTENCES.read_text("utf-8").splitlines()
    path = folder / "few.tsv"
    path.write_text("\n".join([header, *rows[::8]]) + "\n", "utf-8")
    return path


def write_tiny_bundle(directory: Path) -> None:
    tokenizer = Tokenizer(path_of(tiny_config().vocab_size).read_bytes())
    pairs = [{"source": "pt", "target": "en", "source_prefix_ids": []}]
    saved = SavedModel(random_network(tiny_config()), tokenizer, pairs, {"note": "random"})
    with tempfile.TemporaryDirectory(dir=directory.parent) as folder:
        export_tiny(saved, Path(folder) / "pt-en", "int8", few_sentences(Path(folder)))
        directory.mkdir(exist_ok=True)
        (Path(folder) / "pt-en").rename(directory / "pt-en")


if __name__ == "__main__":
    write_tiny_bundle(Path(sys.argv[1]))
