"""Where bundles lie: which folders may hold one, and whether the files of one have changed."""

from pathlib import Path

from dragoman.service.bundles.manifest import MANIFEST

Signature = tuple[tuple[str, int, int, int], ...]  # name, bytes and times of change of every file


def folders_in(root: Path) -> list[Path]:
    """The folders that may hold bundles: those in the root, or the root if it is a bundle itself.

    A name that begins with a dot is left out, so that a bundle can be copied under it and renamed when it is complete.
    """
    if (root / MANIFEST).is_file():
        return [root]
    return sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))


def may_hold_bundle(path: Path) -> bool:
    try:
        return (path / MANIFEST).is_file()
    except OSError:
        return True  # loading it will say what is wrong; the other bundles load all the same


def signature(path: Path) -> Signature:
    try:
        files = [(file.name, file.stat()) for file in path.iterdir() if file.is_file()]
    except OSError:
        return ()  # the folder is changing right now: another look will follow
    return tuple(sorted((name, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns) for name, stat in files))
