"""API keys: the file they are kept in, and finding the one a caller sent.

The file is JSON, `{"keys": [{"name", "sha256", "requests_per_minute", "characters_per_month", "created"}]}`, and is
read again when it changes. A key is 256 random bits, so a single SHA-256 protects it (slow hashes are for passwords,
which people choose). A digest is compared in constant time with every known one. `limits.py` counts what a key may
use; each dialect knows which header or field carries it.
"""

import hashlib
import hmac
import json
import logging
import os
import re
import secrets
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

KEY_PREFIX = "dm_"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

log = logging.getLogger("dragoman.keys")

Signature = tuple[int, ...] | None  # tells one state of a file from another; None without a file


class KeysError(Exception):
    """A keys file that cannot be used; the message is one sentence that says what to do."""


@dataclass(frozen=True)
class Key:
    name: str  # appears in logs and scopes the cache; the key itself appears nowhere
    sha256: str
    requests_per_minute: int | None = None
    characters_per_month: int | None = None
    created: str = ""


def new_key() -> str:
    return KEY_PREFIX + secrets.token_urlsafe(32)


def digest(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def read_keys(path: Path) -> tuple[Key, ...]:
    try:
        records = json.loads(path.read_bytes())["keys"]
        keys = tuple(_key(record) for record in records)
    except FileNotFoundError:
        raise KeysError(f"There is no keys file {path}; make one with `dragoman keys add NAME`.") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise KeysError(
            f"The keys file {path} cannot be read ({error}); use one that `dragoman keys add NAME --file FILE` wrote."
        ) from None
    if len({key.name for key in keys}) < len(keys):
        raise KeysError(f"The keys file {path} names a key twice; give each its own name.")
    return keys


def write_keys(path: Path, keys: Iterable[Key]) -> None:
    """Replace the file in one step, so that a server never reads half of it; only its owner may read it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = json.dumps({"keys": [asdict(key) for key in keys]}, indent=2) + "\n"
    replace_file(path, content.encode())


def replace_file(path: Path, content: bytes) -> None:
    """Write beside `path` and rename, so that a crash leaves the old content or the new."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


def _key(record: dict[str, Any]) -> Key:
    key = Key(**record)
    if not isinstance(key.name, str) or not NAME.fullmatch(key.name):
        raise ValueError("a name is 1 to 64 letters, digits, dots, dashes and underscores")
    if not isinstance(key.sha256, str) or not re.fullmatch(r"[0-9a-f]{64}", key.sha256):
        raise ValueError(f"the sha256 of {key.name} is not 64 hexadecimal digits")
    for limit in (key.requests_per_minute, key.characters_per_month):
        if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 0):
            raise ValueError(f"a limit of {key.name} is neither null nor a whole number")
    return key


class KeyRing:
    """The keys that are valid now. Without a file there are no keys, and every caller is served."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._seen = _signature(path)  # before reading, so that a change meanwhile is noticed
        self._keys = () if path is None else read_keys(path)

    @property
    def in_use(self) -> bool:
        return self._path is not None

    def find(self, key: str) -> Key | None:
        wanted = digest(key)
        found = None
        for candidate in self._keys:  # all of them, so that the time taken tells nothing about the keys
            if hmac.compare_digest(candidate.sha256, wanted):
                found = candidate
        return found

    def changed(self) -> bool:
        """Whether the file differs from the one that was last read or tried; looks at its metadata only."""
        return _signature(self._path) != self._seen

    def reload(self) -> None:
        """Read the file again; a broken one leaves the keys as they were."""
        if self._path is None:
            return
        self._seen = _signature(self._path)
        try:
            self._keys = read_keys(self._path)
            log.info("keys reloaded", extra={"keys": len(self._keys)})
        except KeysError as error:
            log.error(str(error))


def _signature(path: Path | None) -> Signature:
    """Of the file behind any links: Kubernetes replaces a link in its path, not the file itself."""
    if path is None:
        return None
    try:
        found = path.stat()
    except OSError:
        return None
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
