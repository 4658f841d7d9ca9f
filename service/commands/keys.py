"""`dragoman keys`: add, list and remove API keys in a keys file."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dragoman.service.commands.configuration import fail, settings_with

if TYPE_CHECKING:
    from dragoman.service.api.keys import Key

keys_cli = typer.Typer(no_args_is_help=True, help="Add, list and remove API keys.")

KeysFile = Annotated[Path | None, typer.Option("--file", help="The keys file; by default DRAGOMAN_KEYS_FILE.")]


@keys_cli.command("add")
def add_key(
    name: str,
    requests_per_minute: Annotated[int | None, typer.Option(min=0, help="Per replica; by default no limit.")] = None,
    characters_per_month: Annotated[int | None, typer.Option(min=0, help="By default no limit.")] = None,
    file: KeysFile = None,
) -> None:
    """Make a key and print it. It cannot be printed again: the file holds only its hash."""
    from dragoman.service.api.keys import NAME, Key, digest, new_key, write_keys

    path = _keys_file(file)
    keys = _read_keys(path) if path.exists() else ()
    if not NAME.fullmatch(name):
        fail("A name has 1 to 64 letters, digits, dots, dashes and underscores.")
    if name in {key.name for key in keys}:
        fail(f"A key named {name} already exists; remove it first, or use another name.")
    key, created = new_key(), datetime.now(UTC).isoformat(timespec="seconds")
    write_keys(path, (*keys, Key(name, digest(key), requests_per_minute, characters_per_month, created)))
    typer.echo(f"This is the key of {name}. Keep it: it is not shown again.", err=True)
    typer.echo(key)


@keys_cli.command("list")
def list_keys(file: KeysFile = None) -> None:
    """List the names and limits of all keys."""
    from rich.console import Console
    from rich.table import Table

    table = Table("name", "requests per minute", "characters per month", "created")
    for key in _read_keys(_keys_file(file)):
        limits = (key.requests_per_minute, key.characters_per_month)
        table.add_row(key.name, *("no limit" if limit is None else f"{limit:,}" for limit in limits), key.created)
    Console().print(table)


@keys_cli.command("remove")
def remove_key(name: str, file: KeysFile = None) -> None:
    """Remove a key; a running server that watches the file refuses it at once."""
    from dragoman.service.api.keys import write_keys

    path = _keys_file(file)
    keys = _read_keys(path)
    if name not in {key.name for key in keys}:
        fail(f"There is no key named {name}; `dragoman keys list` shows all names.")
    write_keys(path, (key for key in keys if key.name != name))


def _keys_file(file: Path | None) -> Path:
    path = file or settings_with().keys_file
    if path is None:
        fail("Say where the keys file is: with --file FILE, or in DRAGOMAN_KEYS_FILE.")
    return path


def _read_keys(path: Path) -> "tuple[Key, ...]":
    from dragoman.service.api.keys import KeysError, read_keys

    try:
        return read_keys(path)
    except KeysError as error:
        fail(str(error))
