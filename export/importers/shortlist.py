"""The lexical shortlist of a Firefox model, `lex.50.50.*.s2t.bin`: target pieces that each source piece may give.

A bundle takes the union of all lists: a fixed set of tokens that may come out, so that a sentence's answer cannot
depend on its neighbours.
"""

import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dragoman.export import ExportError
from dragoman.export.importers.student_file import read_bytes

_MAGIC, _HEAD = 0xF11A48D5013417F5, 48
_WORD = (1 << 64) - 1


@dataclass(frozen=True)
class Shortlist:
    first: int  # the most frequent pieces, which may always come out
    words: npt.NDArray[np.uint32]  # of all lists, one after the other


def read_shortlist(path: Path, source_size: int, target_size: int) -> Shortlist:
    data = read_bytes(path)
    if len(data) < _HEAD or struct.unpack_from("<Q", data)[0] != _MAGIC:
        raise ExportError(f"{path} is not a binary shortlist of Firefox Translations")
    _, checksum, first, _, offsets, count = struct.unpack_from("<6Q", data)
    if len(data) != _HEAD + 8 * offsets + 4 * count:
        wanted = _HEAD + 8 * offsets + 4 * count
        raise ExportError(f"{path} has {len(data)} bytes where its head says {wanted}: get the file again")
    if _checksum(data) != checksum:
        raise ExportError(f"{path} does not have the checksum that its head says: get the file again")
    words = np.frombuffer(data, "<u4", count, _HEAD + 8 * offsets)
    if offsets != source_size + 1 or (count and int(words.max()) >= target_size):
        raise ExportError(
            f"{path} has lists for {offsets - 1} pieces where the vocabulary has {source_size}: "
            "take all files from one model"
        )
    return Shortlist(int(first), words)


def _checksum(data: bytes) -> int:
    """Over the 64-bit words after the checksum itself; a last half word does not count."""
    mixed = 0
    for word in np.frombuffer(data, "<u8", (len(data) - 16) // 8, 16).tolist():
        mixed ^= (word + 0x9E3779B9 + (mixed << 6) + (mixed >> 2)) & _WORD
    return mixed
