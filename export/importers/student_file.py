"""The items of a model file as Mozilla ships its student networks: `model.*.intgemm.alphas.bin`, version 1.

Little-endian. A head of four numbers for every item (length of its name, type, rank, length of its data), then all
names, all shapes, some padding, and the data. Quantized items are integers and one multiplier: the weight is
integer / multiplier. Their bytes are transposed while their shape is not, except those of embedding tables.
"""

import gzip
import math
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dragoman.export import ExportError
from dragoman.export.network import Floats

_FLOAT32, _INT8, _INTGEMM8 = 0x404, 0x101, 0x4101
_CONFIGURATION = "special:model.yml"
_MOST_ITEMS = 100_000


@dataclass(frozen=True)
class QuantizedItem:
    """The weight is integers / multiplier, [in, out]; an embedding table is [V, d]."""

    integers: npt.NDArray[np.int8]
    multiplier: float

    @property
    def real(self) -> Floats:
        return np.asarray(self.integers / np.float32(self.multiplier), np.float32)


@dataclass(frozen=True)
class StudentFile:
    path: Path
    floats: Mapping[str, Floats]
    quantized: Mapping[str, QuantizedItem]
    configuration: Mapping[str, str]  # the entries of one line; lists are joined by spaces

    def number(self, key: str) -> int:
        value = self.configuration.get(key, "")
        if not value.isdigit() or not int(value):
            raise ExportError(f"{self.path} has no usable {key} in its configuration: it is not a student model")
        return int(value)


def read_bytes(path: Path) -> bytes:
    """The content of a file, unpacked if its name ends in .gz."""
    try:
        data = path.read_bytes()
        return gzip.decompress(data) if path.suffix == ".gz" else data
    except (OSError, EOFError, zlib.error) as error:
        raise ExportError(f"{path} cannot be read ({error}): get the file again") from error


def read_student_file(path: Path) -> StudentFile:
    try:
        return _read(path, read_bytes(path))
    except (struct.error, ValueError, UnicodeDecodeError) as error:
        raise ExportError(f"{path} is cut short or not a model file of Firefox Translations ({error})") from error


def _read(path: Path, data: bytes) -> StudentFile:
    version, count = struct.unpack_from("<QQ", data, 0)
    if version != 1 or not 0 < count < _MOST_ITEMS:
        raise ExportError(f"{path} is not a model file of Firefox Translations: it begins with {version}, not with 1")
    at = 16
    heads = [struct.unpack_from("<QQQQ", data, at + 32 * i) for i in range(count)]
    at += 32 * count
    names, shapes = list[str](), list[tuple[int, ...]]()
    for length, *_ in heads:
        names.append(data[at : at + length - 1].decode())
        at += length
    for _, _, rank, _ in heads:
        shapes.append(struct.unpack_from(f"<{rank}i", data, at))
        at += 4 * rank
    at += 8 + int(struct.unpack_from("<Q", data, at)[0])
    if at + sum(head[3] for head in heads) != len(data):
        raise ExportError(
            f"{path} has {len(data)} bytes where its heads say {at + sum(head[3] for head in heads)}: get it again"
        )
    floats, quantized, text = dict[str, Floats](), dict[str, QuantizedItem](), ""
    for (_, kind, _, length), name, shape in zip(heads, names, shapes, strict=True):
        if kind == _FLOAT32:
            floats[name] = np.frombuffer(data, "<f4", math.prod(shape), at).reshape(shape)
        elif kind == _INTGEMM8:
            quantized[name] = _quantized(data, at, name, shape)
        elif kind == _INT8 and name == _CONFIGURATION:
            text = data[at : at + math.prod(shape)].rstrip(b"\0").decode()
        else:
            raise ExportError(f"{path} has the item {name} of the type {kind:#x}, which no student model has")
        at += length
    return StudentFile(path, floats, quantized, _configuration(text))


def _quantized(data: bytes, at: int, name: str, shape: tuple[int, ...]) -> QuantizedItem:
    size = math.prod(shape)
    integers, multiplier = np.frombuffer(data, "i1", size, at), np.frombuffer(data, "<f4", 1, at + size)[0]
    if not multiplier > 0:
        raise ValueError(f"{name} has the multiplier {multiplier}")
    as_shaped = "Wemb" in name
    integers = integers.reshape(shape) if as_shaped else integers.reshape(shape[::-1]).T
    return QuantizedItem(integers, float(multiplier))


def _configuration(text: str) -> dict[str, str]:
    """`key: value` lines; the lines of a list follow their key with a dash."""
    found, key = dict[str, str](), ""
    for line in text.splitlines():
        if line.lstrip().startswith("- "):
            found[key] = f"{found[key]} {line.lstrip()[2:].strip()}".strip()
        elif ":" in line:
            key, _, value = line.partition(":")
            key = key.strip()
            found[key] = value.strip().strip('"')
    return found
