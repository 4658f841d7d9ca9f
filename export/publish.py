"""Give a finished bundle its name: the last step of every export and import, whatever the model comes from.

    with publishing(out, replace_old=True) as staging:
        ...                             # write graphs, weights, golden sentences and tokenizer to staging.folder
        staging.seal(bundle, evidence)  # adds the model card and bundle.json

Everything is written to a hidden folder beside `out`, which servers ignore. At the end the folder is read as a server
reads it, and renamed. A bundle that failed its checks, or was interrupted, never exists under its name; a bundle that
is replaced stays whole until its successor is ready.
"""

import hashlib
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dragoman.export import ExportError
from dragoman.export.card import model_card
from dragoman.service.bundles.manifest import (
    DECODER,
    ENCODER,
    LEAP,
    MANIFEST,
    MODEL_CARD,
    WEIGHTS,
    Bundle,
    BundleError,
    read_bundle,
    read_golden,
    record_file,
)


@dataclass(frozen=True)
class Staging:
    """A bundle in the making."""

    folder: Path

    def seal(self, bundle: Bundle, evidence: Mapping[str, Any], about: str = "") -> Bundle:
        """Write the card and the manifest for the files that are in the folder; may be repeated with more evidence.

        `about` is what the card says of the text that the model suits."""
        bundle = replace(bundle, path=self.folder, evidence=evidence)
        (self.folder / MODEL_CARD).write_text(model_card(bundle, about), "utf-8")
        names = sorted(path.name for path in self.folder.iterdir() if path.name != MANIFEST)
        bundle = replace(bundle, files={name: record_file(self.folder / name) for name in names})
        (self.folder / MANIFEST).write_text(bundle.to_json(), "utf-8")
        return read_bundle(self.folder)


def content_version(folder: Path, tokenizer_files: Sequence[str]) -> str:
    """Twelve digits that change when anything that translates changes."""
    digest = hashlib.sha256()
    for name in (ENCODER, DECODER, LEAP, WEIGHTS, *tokenizer_files):
        digest.update((folder / name).read_bytes())
    return digest.hexdigest()[:12]


@contextmanager
def publishing(out: Path, replace_old: bool = False) -> Iterator[Staging]:
    """A hidden folder that takes the name `out` at the end, or vanishes when anything was raised."""
    folder = _hidden_sibling(out)
    try:
        yield Staging(folder)
        put_in_place(folder, out, replace_old)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def put_in_place(folder: Path, out: Path, replace_old: bool) -> None:
    """Check a finished bundle as a server would, and give it the name `out`, which is on the same disk."""
    _check_readable(folder)
    folder.chmod(0o755)  # mkdtemp made it private
    check_place(out, replace_old)  # once more: something else may have taken the name in the meantime
    if out.exists():
        _exchange(folder, out)
    else:
        folder.rename(out)


def check_place(out: Path, replace_old: bool) -> None:
    """Publishing deletes what has the name already: that may only be a bundle, and only when asked for."""
    if out.exists() and not replace_old:
        raise ExportError(f"{out} exists: give another name, or --replace")
    if out.exists() and not (out / MANIFEST).is_file():
        raise ExportError(f"{out} is not a bundle (it has no {MANIFEST}), so --replace leaves it: give another name")


def _hidden_sibling(out: Path) -> Path:
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    except OSError as error:
        raise ExportError(f"{out} cannot be written ({error}): give another name") from error


def _check_readable(folder: Path) -> None:
    """What a server checks when it reads a bundle: the manifest, sizes and hashes of all files, golden sentences."""
    bundle = read_bundle(folder)
    if not read_golden(bundle):
        raise BundleError(f"bundle {folder} has no golden sentences to prove itself by")
    unlisted = {path.name for path in folder.iterdir()} - {*bundle.files, MANIFEST}
    if unlisted:
        raise BundleError(f"bundle {folder} does not list {', '.join(sorted(unlisted))} in {MANIFEST}: seal it again")


def _exchange(folder: Path, out: Path) -> None:
    """Put `folder` in the place of `out`; whatever interrupts this, one of the two has the name."""
    aside = _hidden_sibling(out)
    try:
        out.rename(aside / "old")
        folder.rename(out)
    finally:
        if not out.exists():
            (aside / "old").rename(out)
        shutil.rmtree(aside)
