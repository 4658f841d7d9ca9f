"""Bring a file from a server: resumed where it stopped, retried where that may help, checked when it is complete.

A download is written to `NAME.part`; `NAME.part.json` remembers which version of the file it is part of (ETag). Only a
complete file that matches what was published gets its name. Clock and sleep are arguments.
"""

import errno
import hashlib
import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from dragoman.export.pulling import PullError
from dragoman.export.pulling.releases import RemoteFile

Advance = Callable[[int, int | None], None]  # bytes so far, bytes in all where known

TIMEOUT = httpx.Timeout(30.0)
MAX_REDIRECTS = 5
FRUITLESS_TRIES = 5  # in a row, without one new byte
MAX_TRIES = 200  # of one file: a server that gives one byte at a time must not keep us for ever
LONGEST_PAUSE = 30.0
_LISTING_BYTES = 64 * 1024 * 1024
_SPARE_BYTES = 16 * 1024 * 1024  # left free on the disk


class _TryAgainError(Exception):
    def __init__(self, reason: str, pause: float | None = None) -> None:
        super().__init__(reason)
        self.pause = pause


def open_client(transport: httpx.BaseTransport | None = None, timeout: httpx.Timeout = TIMEOUT) -> httpx.Client:
    return httpx.Client(
        follow_redirects=True,
        max_redirects=MAX_REDIRECTS,
        timeout=timeout,
        headers={"User-Agent": "dragoman-pull", "Accept-Encoding": "identity"},
        transport=transport,
    )


def free_bytes(folder: Path) -> int:
    return shutil.disk_usage(folder).free


class Fetcher:
    def __init__(
        self,
        client: httpx.Client,
        sleep: Callable[[float], None] = time.sleep,
        free: Callable[[Path], int] = free_bytes,
        tries: int = FRUITLESS_TRIES,
    ) -> None:
        self._client, self._sleep, self._free, self._tries = client, sleep, free, tries

    def read_json(self, url: str) -> Any:
        """A registry's listing; small enough to be held in memory."""
        what = f"the registry {url}"
        body = self._repeat(lambda: self._read(url, what), what, lambda: 0)
        try:
            return json.loads(body)
        except ValueError as error:
            raise PullError(f"{what} did not answer with JSON: check the address, or name another --mirror") from error

    def download(self, file: RemoteFile, target: Path, advance: Advance = lambda done, total: None) -> Path:
        """The packed file at `target`; one that is there already is not downloaded again."""
        if target.is_file() and _matches(file, target):
            advance(target.stat().st_size, target.stat().st_size)
            return target
        part = _Part(target, file.url)
        self._repeat(lambda: self._continue(file, part, advance), file.url, part.size)
        _check_packed(file, part)
        part.finish()
        return target

    def need_room(self, folder: Path, wanted: int) -> None:
        free = self._free(folder)
        if free < wanted + _SPARE_BYTES:
            raise PullError(
                f"the disk of {folder} has {free / 1e6:.0f} MB left and {wanted / 1e6:.0f} MB are needed: "
                "free some, or choose another folder"
            )

    def _repeat(self, attempt: Callable[[], Any], what: str, progress: Callable[[], int]) -> Any:
        """Until it succeeds. Tries that brought new bytes are not counted as fruitless."""
        fruitless, before, reason = 0, progress(), ""
        for _ in range(MAX_TRIES):
            try:
                return attempt()
            except httpx.TooManyRedirects as error:
                raise PullError(f"{what} redirects without end: name another --mirror") from error
            except httpx.HTTPStatusError as error:
                raise PullError(_refusal(what, error.response.status_code)) from error
            except (httpx.UnsupportedProtocol, httpx.InvalidURL) as error:
                raise PullError(f"{what} is not an address that starts with http:// or https://") from error
            except (httpx.TransportError, httpx.DecodingError, _TryAgainError) as error:
                reason, pause = _reason(error), getattr(error, "pause", None)
            now = progress()
            fruitless = 0 if now > before else fruitless + 1
            before = now
            if fruitless >= self._tries:
                break
            self._sleep(min(LONGEST_PAUSE, 2.0**fruitless / 2 if pause is None else pause))
        raise PullError(
            f"{what} could not be read ({reason}): check the network and try again, or name another --mirror"
        )

    def _read(self, url: str, what: str) -> bytes:
        chunks, size = [], 0
        with self._client.stream("GET", url) as response:
            _check_status(response)
            for chunk in response.iter_bytes():
                chunks.append(chunk)
                size += len(chunk)
                if size > _LISTING_BYTES:
                    raise PullError(f"{what} is larger than any listing: check the address")
        return b"".join(chunks)

    def _continue(self, file: RemoteFile, part: "_Part", advance: Advance) -> None:
        offset = part.resumable()
        headers = {"Range": f"bytes={offset}-", "If-Range": part.validator} if offset else {}
        with self._client.stream("GET", file.url, headers=headers) as response:
            if response.status_code == httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE:
                part.forget()  # it has changed, or what we have is no part of it
                raise _TryAgainError("the server no longer has the rest of it", pause=0.0)
            _check_status(response)
            offset = _offset_of(response, offset)
            total = _total(response, offset)
            if total is not None:
                self.need_room(part.target.parent, total - offset)
            part.begin(offset, response.headers)
            part.write(response.iter_raw(), lambda done: advance(done, total))
        if total is not None and part.size() != total:
            raise _TryAgainError(f"{part.size()} of {total} bytes arrived")


class _Part:
    """The unfinished file on disk, and which version of the remote file it belongs to."""

    def __init__(self, target: Path, url: str) -> None:
        self.target, self._url = target, url
        self._path = target.with_name(target.name + ".part")
        self._about = target.with_name(target.name + ".part.json")
        self.validator = ""

    def size(self) -> int:
        return self._path.stat().st_size if self._path.is_file() else 0

    def path(self) -> Path:
        return self._path

    def resumable(self) -> int:
        """How many bytes may be kept: none where the server gave nothing to recognize its file by."""
        try:
            about = json.loads(self._about.read_text("utf-8"))
            self.validator = str(about["validator"]) if about["url"] == self._url else ""
        except (OSError, ValueError, KeyError, TypeError):
            self.validator = ""
        return self.size() if self.validator else 0

    def begin(self, offset: int, headers: httpx.Headers) -> None:
        """What is kept of the part is said before anything is added to it."""
        etag = headers.get("ETag", "")
        validator = headers.get("Last-Modified", "") if etag.startswith("W/") or not etag else etag
        with disk_errors(self.target.parent):
            if not offset:
                self._about.unlink(missing_ok=True)
                self._path.write_bytes(b"")
            self._about.write_text(json.dumps({"url": self._url, "validator": validator}), "utf-8")

    def write(self, chunks: Any, advance: Callable[[int], None]) -> None:
        done = self.size()
        with disk_errors(self.target.parent), self._path.open("ab") as file:
            for chunk in chunks:
                file.write(chunk)
                file.flush()  # what has arrived is there for the next try, whatever happens to this process
                done += len(chunk)
                advance(done)

    def forget(self) -> None:
        self._about.unlink(missing_ok=True)
        self._path.unlink(missing_ok=True)

    def finish(self) -> None:
        self._path.rename(self.target)
        self._about.unlink(missing_ok=True)


@contextmanager
def disk_errors(folder: Path, only_full: bool = False) -> Iterator[None]:
    """A full or forbidden disk becomes one sentence."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise PullError(f"the disk of {folder} is full: free some, or choose another folder") from error
        if only_full:
            raise
        raise PullError(f"{folder} cannot be written ({error.strerror}): choose another folder") from error


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _matches(file: RemoteFile, path: Path) -> bool:
    if file.packed_size is not None and path.stat().st_size != file.packed_size:
        return False
    return file.packed_sha256 is None or sha256_of(path) == file.packed_sha256


def _check_packed(file: RemoteFile, part: _Part) -> None:
    if _matches(file, part.path()):
        return
    size = part.size()
    part.forget()
    if file.packed_size is not None and size != file.packed_size:
        raise PullError(f"{file.url} has {size} bytes where {file.packed_size} are published: name another --mirror")
    raise PullError(f"{file.url} does not have the published SHA-256, so it is not used: name another --mirror")


def _check_status(response: httpx.Response) -> None:
    status = response.status_code
    if status in (408, 425, 429) or status >= 500:
        raise _TryAgainError(f"the server answers {status}", _retry_after(response))
    if status not in (200, 206):
        raise httpx.HTTPStatusError("refused", request=response.request, response=response)


def _retry_after(response: httpx.Response) -> float | None:
    value = response.headers.get("Retry-After", "")
    return float(value) if value.isdecimal() else None


def _refusal(what: str, status: int) -> str:
    if status in (404, 410):
        return f"{what} is not there (status {status}): the registry may be newer or older than its files, try --mirror"
    if status in (401, 403):
        return f"{what} may not be read (status {status}): name a --mirror that you may use"
    return f"{what} was refused (status {status}): name another --mirror"


def _offset_of(response: httpx.Response, offset: int) -> int:
    """Where the answer begins: a server that ignores Range, or has another version, sends all of it."""
    if response.status_code != httpx.codes.PARTIAL_CONTENT:
        return 0
    if not response.headers.get("Content-Range", "").startswith(f"bytes {offset}-"):
        raise _TryAgainError("the server sent another part than was asked for")
    return offset


def _total(response: httpx.Response, offset: int) -> int | None:
    length = response.headers.get("Content-Length", "")
    return offset + int(length) if length.isdecimal() else None


def _reason(error: Exception) -> str:
    if isinstance(error, httpx.TimeoutException):
        return "it took too long to answer"
    return str(error) or type(error).__name__
