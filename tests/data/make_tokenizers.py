"""`python -m tests.data.make_tokenizers`: learns the tokenizers that tests read, from our own sentences.

They are kept as files because SentencePiece may learn other pieces on another machine: a test that counts tokens would
pass here and fail there.
"""

import csv
from pathlib import Path

from dragoman.model.tokenizer import train_tokenizer

DATA = Path(__file__).parent
SIZES = (480, 900)


def path_of(vocab_size: int) -> Path:
    return DATA / f"tokenizer-{vocab_size}.model"


def main() -> None:
    with (DATA / "sentences.tsv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    lines = [row[language] for row in rows for language in ("pt", "en")]
    for size in SIZES:
        path_of(size).write_bytes(train_tokenizer(lines, size, ("en", "pt")))


if __name__ == "__main__":
    main()
