"""Read the sentences that an export is checked with, and encode those that fit the model."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dragoman.export import ExportError
from dragoman.export.verify import ParallelText
from dragoman.model.text import CorpusError, lines, read_text
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
        ids, (sources, references) = self.read_columns(source, reference)
        return ParallelText(f"{source.parent.name} {source.stem}".strip(), sources, references), ids

    def read_columns(self, source: Path, *targets: Path) -> tuple[list[list[int]], list[list[str]]]:
        """Aligned files without the lines whose source is unusable: ids of the sources, and the lines by file."""
        columns = [read_sentences(source, self.pair.source)]
        for path in targets:
            columns.append(read_sentences(path, self.pair.target))
            if len(columns[-1]) != len(columns[0]):
                raise ExportError(f"{source} has {len(columns[0])} sentences but {path} has {len(columns[-1])}")
        rows = [(usable[0][1], row) for row in zip(*columns, strict=True) if (usable := self.usable(row[:1]))]
        return [ids for ids, _ in rows], [[row[i] for _, row in rows] for i in range(len(columns))]

    def usable(self, texts: Sequence[str]) -> list[tuple[str, list[int]]]:
        """The texts that are not empty and not too long, with their ids."""
        prefix = self.pair.source_prefix_ids
        encoded = [(text, [*prefix, *self.tokenizer.encode(text), EOS_ID]) for text in texts if text.strip()]
        return [(text, ids) for text, ids in encoded if len(ids) <= self.limits.max_source_tokens]


def read_sentences(path: Path, language: str) -> list[str]:
    """One sentence a line; or, in a .tsv whose first line names languages, the column of this one."""
    found = read_lines(path)
    return _column(path, found, language) if path.suffix == ".tsv" else found


def read_lines(path: Path) -> list[str]:
    try:
        text = read_text(path)
    except CorpusError as error:
        raise ExportError(str(error)) from error
    # As in training, only a line feed ends a line: another separator within a sentence would shift all that follow.
    return [line.rstrip("\r") for line in text.removesuffix("\n").split("\n")] if text else []


def read_rows(path: Path) -> Iterator[tuple[str, str]]:
    """The first two columns of a table of any size, whatever their languages."""
    try:
        for number, line in enumerate(lines(path), 1):
            row = line.rstrip("\r").split("\t")
            if len(row) > 1:
                yield row[0], row[1]
            elif line.strip():
                raise ExportError(f"{path}, line {number}: one column, where a text and its translation are needed")
    except CorpusError as error:
        raise ExportError(str(error)) from error


def _column(path: Path, found: Sequence[str], language: str) -> list[str]:
    first, *rows = [line.split("\t") for line in found] or [[""]]
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
