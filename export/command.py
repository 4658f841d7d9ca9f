"""`dragoman-export`, for an installation that may lack what exporting needs."""

from dragoman.model.commands import run_command


def main() -> None:
    run_command("dragoman.export.arguments")
