"""`python -m tests.pulling.pull_process quick|stuck pull …`: the real command, with an importer of the tests' own."""

import sys
import time
from pathlib import Path
from typing import Any, NoReturn

from dragoman.export.pulling import importer_table
from dragoman.service.commands.main import main
from tests.pulling.pulls import import_fake


def quick(*arguments: Any) -> Any:
    return import_fake(*arguments)


def stuck(folder: Path, out: Path, *others: Any) -> NoReturn:
    """Half a bundle, and then nothing more until somebody ends it."""
    out.mkdir()
    (out / "half").write_text("half")
    while True:
        time.sleep(0.02)  # short: a signal just before a long sleep would be noticed only after it


if __name__ == "__main__":
    importer_table.IMPORTERS["firefox"] = (
        "tests.pulling.pull_process",
        sys.argv.pop(1),
    )
    main()
