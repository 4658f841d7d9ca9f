"""The commands that need torch, for an installation that may lack it: serving needs none of this."""

import sys
from importlib import import_module


def train() -> None:
    run_command("dragoman.model.train")


def evaluate() -> None:
    run_command("dragoman.model.evaluate")


def run_command(module: str) -> None:
    """Its `main`, or a sentence on what to install."""
    try:
        main = import_module(module).main
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] in ("model", "export"):
            raise  # ours: a mistake, not a choice
        sys.exit(f"{error.name} is not installed; training and export need it: pip install 'dragoman[train]'")
    main()
