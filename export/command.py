"""The console script `dragoman-export`; says what to install where torch or another package is missing."""

from dragoman.model.commands import run_command


def main() -> None:
    run_command("dragoman.export.arguments")
