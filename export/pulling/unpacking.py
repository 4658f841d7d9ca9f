"""Open what was downloaded, gzip, zstd or zip, and check that it is what the registry promised."""

import hashlib
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from dragoman.export.pulling import PullError
from dragoman.export.pulling.fetching import disk_errors
from dragoman.export.pulling.releases import RemoteFile

_CHUNK = 256 * 1024
_LARGEST = 8 * 1024**3  # of a file whose size is not published: beyond it, it is no model but a trap
_GZIP, _ZSTD, _ZIP = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PK\x03\x04"


def unpack(file: RemoteFile, packed: Path, folder: Path) -> None:
    """Write the unpacked file to `folder`. A file that is broken is removed, so that the next pull brings it again."""
    with packed.open("rb") as opened:
        magic = opened.read(4)
    try:
        if magic == _ZIP and file.name.endswith(".argosmodel"):
            _unzip(packed, folder)
        else:
            _write_checked(file, _opened(packed, magic), folder / file.name)
    except (zlib.error, EOFError, zipfile.BadZipFile, _BrokenError) as error:
        packed.unlink()
        raise PullError(
            f"{file.url} arrived, but cannot be unpacked ({error}): try again, or name another --mirror"
        ) from error
    except PullError as error:
        if isinstance(error, _UnlikeError):
            packed.unlink()
        raise


class _BrokenError(Exception):
    """Not what its first bytes promise."""


class _UnlikeError(PullError):
    """Whole, but not what was published."""


def _write_checked(file: RemoteFile, chunks: Iterator[bytes], target: Path) -> None:
    digest, size, most = hashlib.sha256(), 0, file.size or _LARGEST
    with disk_errors(target.parent), target.open("wb") as out:
        for chunk in chunks:
            size += len(chunk)
            if size > most:
                break
            digest.update(chunk)
            out.write(chunk)
    if size > most or (file.size is not None and size != file.size):
        more = "more than " if size > most else ""
        raise _UnlikeError(
            f"{file.url} unpacks to {more}{min(size, most)} bytes where {file.size or most} are published: "
            "name another --mirror"
        )
    if file.sha256 is not None and digest.hexdigest() != file.sha256.lower():
        raise _UnlikeError(f"{file.url} does not have the published SHA-256, so it is not used: name another --mirror")


def _opened(packed: Path, magic: bytes) -> Iterator[bytes]:
    if magic == _ZSTD:
        return _zstd(packed)
    if magic[:2] == _GZIP:
        return _gzip(packed)
    if packed.suffix in (".gz", ".zst"):
        raise _BrokenError(f"it is no {packed.suffix[1:]} file")
    return _chunks(packed)


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            yield chunk


def _gzip(path: Path) -> Iterator[bytes]:
    """Members one after another, as the format allows; the last one must be whole."""
    member = zlib.decompressobj(zlib.MAX_WBITS | 16)
    for chunk in _chunks(path):
        while chunk:
            if member.eof:
                member = zlib.decompressobj(zlib.MAX_WBITS | 16)
            yield member.decompress(chunk)
            chunk = member.unused_data
    if not member.eof:
        raise EOFError("its end is missing")


def _zstd(path: Path) -> Iterator[bytes]:
    import zstandard

    frame = zstandard.ZstdDecompressor().decompressobj()
    try:
        for chunk in _chunks(path):
            while chunk:
                if frame.eof:
                    frame = zstandard.ZstdDecompressor().decompressobj()
                yield frame.decompress(chunk)
                chunk = frame.unused_data
    except zstandard.ZstdError as error:
        raise _BrokenError(str(error)) from error
    if not frame.eof:
        raise EOFError("its end is missing")


def _unzip(packed: Path, folder: Path) -> None:
    """Files of the package without its outer folder; a name that leaves the folder is refused."""
    with zipfile.ZipFile(packed) as archive, disk_errors(folder):
        infos = [info for info in archive.infolist() if not info.is_dir()]
        if sum(info.file_size for info in infos) > _LARGEST:
            raise _BrokenError("it is larger than any model")
        tops = {PurePosixPath(info.filename).parts[0] for info in infos}
        nested = len(tops) == 1 and all(len(PurePosixPath(info.filename).parts) > 1 for info in infos)
        for info in infos:
            parts = PurePosixPath(info.filename).parts[1 if nested else 0 :]
            if not parts or info.filename.startswith("/") or ".." in parts or "\\" in info.filename:
                raise _BrokenError(f"it names {info.filename!r}, which is outside of it")
            target = folder.joinpath(*parts)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(archive.read(info))
