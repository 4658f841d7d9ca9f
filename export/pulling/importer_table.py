"""Which importer makes a bundle of which kind of model. They are imported when needed: each brings onnx with it."""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, cast

from dragoman.export.pulling import PullError
from dragoman.export.pulling.releases import ModelKind
from dragoman.service.bundles.manifest import Bundle, Precision

INSTALL = "pip install 'dragoman[import]'"

# kind -> module and function
IMPORTERS: dict[ModelKind, tuple[str, str]] = {
    "firefox": ("dragoman.export.importers.firefox", "import_firefox"),
    "marian": ("dragoman.export.importers.marian", "import_marian"),
    "ctranslate2": ("dragoman.export.importers.ctranslate2_model", "import_ctranslate2"),
}


class Importer(Protocol):
    """Make a bundle at `out` of the unpacked model in `folder`, prove it, and publish it; raise where it cannot."""

    def __call__(
        self,
        folder: Path,
        out: Path,
        pair: tuple[str, str] | None,
        precision: Precision,
        replace: bool,
        announce: Callable[[str], None],
    ) -> Bundle: ...


def find_importer(kind: ModelKind) -> Importer:
    module, function = IMPORTERS[kind]
    try:
        return cast(Importer, getattr(importlib.import_module(module), function))
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.startswith("dragoman."):
            raise PullError(f"this version of Dragoman cannot import {kind} models: take another registry") from error
        raise PullError(f"importing {kind} models needs {error.name}: {INSTALL}") from error
