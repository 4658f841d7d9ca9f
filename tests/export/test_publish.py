"""A bundle takes its name whole and checked, whatever it comes from, or not at all."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from dragoman.export import ExportError
from dragoman.export.publish import Staging, publishing
from dragoman.service.bundles.manifest import MANIFEST, MODEL_CARD, Bundle, BundleError, read_bundle
from dragoman.service.catalog.folders import folders_in


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def fill(staging: Staging, bundle: Bundle, version: str = "1") -> Bundle:
    """What an importer does: files from elsewhere, a manifest and evidence of its own."""
    for name in bundle.files:
        if name != MODEL_CARD:
            shutil.copy(bundle.file(name), staging.folder)
    return staging.seal(replace(bundle, version=version), bundle.evidence)


def publish(
    out: Path, bundle: Bundle, version: str = "1", before_end: Callable[[Path], object] = str, replace_old: bool = False
) -> None:
    with publishing(out, replace_old) as staging:
        fill(staging, bundle, version)
        before_end(staging.folder)


def test_files_manifest_and_evidence_become_a_bundle(tiny_bundle: Bundle, tmp_path: Path) -> None:
    """The step knows nothing of torch or training: it lists the files that are there, and adds the card."""
    with publishing(tmp_path / "made") as staging:
        fill(staging, tiny_bundle, "7")
        assert folders_in(tmp_path) == []  # a server that looks now sees nothing
    assert read_bundle(tmp_path / "made") == replace(
        tiny_bundle, path=tmp_path / "made", version="7", files=read_bundle(tmp_path / "made").files
    )
    assert names(tmp_path) == {"made"}
    assert (tmp_path / "made").stat().st_mode & 0o777 == 0o755


def test_evidence_may_be_added_before_the_end(tiny_bundle: Bundle, tmp_path: Path) -> None:
    """Some evidence can only be had from the finished bundle."""
    with publishing(tmp_path / "made") as staging:
        draft = fill(staging, tiny_bundle)
        staging.seal(draft, {**draft.evidence, "more": 1})
    assert read_bundle(tmp_path / "made").evidence["more"] == 1


def spoil_a_file(folder: Path) -> None:
    (folder / "weights.bin").write_bytes(b"other weights")


def leave_out_the_manifest(folder: Path) -> None:
    (folder / MANIFEST).unlink()


def add_an_unlisted_file(folder: Path) -> None:
    (folder / "notes.txt").write_text("left behind")


def interrupt(folder: Path) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (spoil_a_file, r"weights\.bin"),
        (leave_out_the_manifest, r"has no bundle\.json"),
        (add_an_unlisted_file, r"does not list notes\.txt"),
    ],
)
def test_a_bundle_that_a_server_would_refuse_never_gets_its_name(
    tiny_bundle: Bundle, tmp_path: Path, spoil: Callable[[Path], object], sentence: str
) -> None:
    """It is read the way a server reads it, after the last byte was written."""
    with pytest.raises(BundleError, match=sentence):
        publish(tmp_path / "made", tiny_bundle, before_end=spoil)
    assert names(tmp_path) == set()


def test_the_old_bundle_stays_whole_until_the_new_one_is_ready(tiny_bundle: Bundle, tmp_path: Path) -> None:
    """A server may load it at any moment in between."""
    out = tmp_path / "made"
    publish(out, tiny_bundle, "old")
    with publishing(out, replace_old=True) as staging:
        fill(staging, tiny_bundle, "new")
        assert read_bundle(out).version == "old"
    assert read_bundle(out).version == "new"
    with pytest.raises(KeyboardInterrupt):
        publish(out, tiny_bundle, "newer", before_end=interrupt, replace_old=True)
    assert read_bundle(out).version == "new"
    assert names(tmp_path) == {"made"}


def test_an_exchange_that_fails_in_the_middle_puts_the_old_bundle_back(
    tiny_bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two renames are not one: whatever happens between them, a bundle has the name."""
    out, rename = tmp_path / "made", Path.rename
    publish(out, tiny_bundle, "old")

    def rename_but_not_the_new_one(self: Path, target: Path) -> Path:
        if self.name.startswith(".") and target == out:
            raise OSError("the disk says no")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", rename_but_not_the_new_one)
    with pytest.raises(OSError, match="says no"):
        publish(out, tiny_bundle, "new", replace_old=True)
    assert read_bundle(out).version == "old"
    assert names(tmp_path) == {"made"}


def test_a_name_that_is_taken_is_refused(tiny_bundle: Bundle, tmp_path: Path) -> None:
    """Also by something that came while the bundle was made."""
    with pytest.raises(ExportError, match="exists: give another name"):
        publish(tmp_path / "made", tiny_bundle, before_end=lambda _: (tmp_path / "made").mkdir())
    assert names(tmp_path) == {"made"}
