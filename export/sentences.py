"""Read the sentences that an export is checked with, and encode those that fit the model."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dragoman.export import ExportError
from dragoman.export.verify import ParallelText
from dragoman.model.text import CorpusError, read_text
from dragoman.model.tokenizer import EOS_ID, Tokenizer
from dragoman.service.bundles.manifest import Limits, Pair


@dataclass(frozen=True)
class SentenceReader:
    """Sentences of one pair as the model reads them: token ids with the pair's prefix and the end of sentence."""

    tokenizer: Tokenizer
    pair: Pair
    limits: Limits

    def read_sources(self, path: Path) -> list[tuple[str, list[int]]]:
        return self.usable(read_sentences(path, self.pair.source))

    def read_test(self, source: Path, reference: Path) -> tuple[ParallelText, list[list[int]]]:
        texts, references = read_sentences(source, self.pair.source), read_sentences(reference, self.pair.target)
        if len(texts) != len(references):
            raise ExportError(f"{source} has {len(texts)} sentences but {reference} has {len(references)}")
        both = [
            (found[0], wanted) for text, wanted in zip(texts, references, strict=True) if (found := self.usable([text]))
        ]
        name = f"{source.parent.name} {source.stem}".strip()
        test = ParallelText(name, [text for (text, _), _ in both], [wanted for _, wanted in both])
        return test, [ids for (_, ids), _ in both]

    def usable(self, texts: Sequence[str]) -> list[tuple[str, list[int]]]:
        """The texts that are not empty and not too long, with their ids."""
        prefix = self.pair.source_prefix_ids
        encoded = [(text, [*prefix, *self.tokenizer.encode(text), EOS_ID]) for text in texts if text.strip()]
        return [(text, ids) for text, ids in encoded if len(ids) <= self.limits.max_source_tokens]


def read_sentences(path: Path, language: str) -> list[str]:
    """One sentence a line; or, in a .tsv whose first line names languages, the column of this one."""
    lines = read_lines(path)
    return _column(path, lines, language) if path.suffix == ".tsv" else lines


def read_lines(path: Path) -> list[str]:
    try:
        text = read_text(path)
    except CorpusError as error:
        raise ExportError(str(error)) from error
    # As in training, only a line feed ends a line: another separator within a sentence would shift all that follow.
    return [line.rstrip("\r") for line in text.removesuffix("\n").split("\n")] if text else []


def _column(path: Path, lines: Sequence[str], language: str) -> list[str]:
    first, *rows = [line.split("\t") for line in lines] or [[""]]
    header = [name.strip() for name in first]  # as in training
    if language not in header:
        raise ExportError(
            f"{path} has no column named {language}: the first line of a .tsv must name the language of each column; "
            "write that line above the others, such as pt and en with a tab between (training reads it as well)"
        )
    for number, row in enumerate(rows, 2):
        if len(row) != len(header):
            raise ExportError(f"{path}, line {number}: {len(row)} columns, but the first line has {len(header)}")
    return [row[header.index(language)] for row in rows]
