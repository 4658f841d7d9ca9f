"""Lines of text files, one at a time: plain, gzip or Zstandard, strictly UTF-8.

A corpus may be larger than the memory, so no corpus is read whole. A line ends with a line feed and with nothing
else: other separators of Unicode belong to the sentence.
"""

import gzip
from codecs import BOM_UTF8
from collections.abc import Iterator
from pathlib import Path

import zstandard


class CorpusError(Exception):
    """The text cannot be used as it is; the message says what to do."""


PACKED = {".gz", ".zst"}


def unpacked_suffix(path: Path) -> str:
    """The kind of text in a file: `.tsv` of `a.tsv` and of `a.tsv.gz`."""
    return Path(path.stem).suffix if path.suffix in PACKED else path.suffix


def raw_lines(path: Path) -> Iterator[bytes]:
    try:
        if path.suffix == ".zst":
            yield from zstandard_lines(path)
            return
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            yield from file
    except (EOFError, zstandard.ZstdError, gzip.BadGzipFile) as error:
        raise CorpusError(f"{path} cannot be unpacked: {error}; copy the file again") from error
    except OSError as error:
        raise CorpusError(f"cannot read {path}: {error.strerror}") from error


def zstandard_lines(path: Path) -> Iterator[bytes]:
    """Frame by frame: the library's own reader takes the end of a file that was cut off for the end of the text."""
    rest, frame, begun = b"", zstandard.ZstdDecompressor().decompressobj(), False
    with path.open("rb") as file:
        while packed := file.read(1 << 20):
            while packed:
                *whole, rest = (rest + frame.decompress(packed)).split(b"\n")
                yield from (line + b"\n" for line in whole)
                begun, packed = not frame.eof, frame.unused_data
                if frame.eof:
                    frame = zstandard.ZstdDecompressor().decompressobj()
    if begun:
        raise EOFError("the last frame has no end")
    if rest:
        yield rest


def lines(path: Path) -> Iterator[str]:
    """Every line without its end. A byte order mark, which some programs write first, is not part of a sentence."""
    leading: list[str] | None = []  # blank lines before any text: the file may hold nothing else
    for number, raw in enumerate(raw_lines(path), 1):
        line = decode(raw.removeprefix(BOM_UTF8) if number == 1 else raw, path, number).removesuffix("\n")
        if leading is None:
            yield line
        else:
            leading.append(line)
            if line.strip():
                yield from leading
                leading = None
    if leading is not None:
        raise CorpusError(f"{path} is empty")


def decode(raw: bytes, path: Path, number: int) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        byte = raw[error.start]
        raise CorpusError(f"{path}, line {number}: byte {byte:#04x} is not UTF-8; convert the file first") from error


def read_text(path: Path) -> str:
    """All of a small file."""
    try:
        data = b"".join(raw_lines(path)).removeprefix(BOM_UTF8)
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        byte = data[error.start]
        raise CorpusError(f"{path}, line {line}: byte {byte:#04x} is not UTF-8; convert the file first") from error
