"""The settings of a command, from the environment and its options; a wrong one ends it with a sentence and code 2."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

if TYPE_CHECKING:
    from dragoman.service.settings import Settings

Bundles = Annotated[Path | None, typer.Option(help="Directory of bundles; without it the embedded ones are used.")]


def settings_with(**overrides: object) -> "Settings":
    from dragoman.service.settings import SettingsError, load_settings

    try:
        return load_settings(**overrides)
    except SettingsError as error:
        fail(str(error))


def fail(sentence: str) -> NoReturn:
    typer.echo(sentence, err=True)
    raise typer.Exit(2)
