"""`dragoman`: serve, translate, models, doctor, keys. Reads the command line, calls the rooms, prints for people."""

import socket
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

_INTERRUPTED = 130  # as the shell counts signals

try:  # a Ctrl-C during the start is most likely to meet this import, before `main` can catch it
    import typer
except KeyboardInterrupt:
    raise SystemExit(_INTERRUPTED) from None

if TYPE_CHECKING:
    from dragoman.service.api.keys import Key
    from dragoman.service.settings import Settings
    from dragoman.service.telemetry.tracing import Tracing

cli = typer.Typer(name="dragoman", no_args_is_help=True, add_completion=False, help="A translation server.")
keys_cli = typer.Typer(no_args_is_help=True, help="Add, list and remove API keys.")
cli.add_typer(keys_cli, name="keys")

Bundles = Annotated[Path | None, typer.Option(help="Directory of bundles; without it the embedded ones serve.")]
KeysFile = Annotated[Path | None, typer.Option("--file", help="The keys file; DRAGOMAN_KEYS_FILE where it is set.")]


def _tell_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"dragoman {version('dragoman')}")
        raise typer.Exit


@cli.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_tell_version, is_eager=True, help="Print the version, and end.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """The console script. `translate` lives in a file of its own."""
    try:
        from dragoman.service.commands.translate import translate

        cli.command()(translate)
        cli()
    except KeyboardInterrupt:
        raise SystemExit(_INTERRUPTED) from None


@cli.command()
def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on [DRAGOMAN_HOST]")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on [DRAGOMAN_PORT]")] = None,
    bundles: Bundles = None,
) -> None:
    """Serve bundles over HTTP. All other settings are environment variables; the README lists them."""
    from dragoman.service.process import interpreter

    with interpreter.serving():
        _serve(_settings(host=host, port=port, bundles=bundles))


def _serve(settings: "Settings") -> None:
    from dragoman.service.api.keys import KeysError
    from dragoman.service.app import create_app
    from dragoman.service.process.server import make_server
    from dragoman.service.telemetry.logs import configure_logs

    configure_logs(settings.log_level, settings.log_format)
    try:
        app = create_app(settings, tracing=_tracing(settings))
    except (KeysError, ImportError) as error:
        _fail(str(error))
    make_server(app, settings, announce=lambda sockets: _begin(settings, sockets)).run()


def _begin(settings: "Settings", sockets: Sequence[socket.socket]) -> None:
    """The bundles are loaded, and the server listens."""
    from dragoman.service.process import interpreter

    interpreter.settle()
    _announce(settings, sockets)


def _announce(settings: "Settings", sockets: Sequence[socket.socket]) -> None:
    host, port = sockets[0].getsockname()[:2]
    shown = "localhost" if host in ("127.0.0.1", "0.0.0.0", "::", "::1") else f"[{host}]" if ":" in host else host
    url = f"http://{shown}:{port}"
    from dragoman.service.api.pages import has_playground

    lines = {
        "page": url + "/" if has_playground(settings) else None,
        "API docs": url + "/docs" if settings.docs else None,
        "metrics": url + "/metrics",
    }
    print(f"Dragoman serves at {url}", *(f"  {name:8} {at}" for name, at in lines.items() if at), sep="\n", flush=True)


def _tracing(settings: "Settings") -> "Tracing | None":
    if not settings.tracing:
        return None
    from dragoman.service.telemetry.tracing import open_tracing

    return open_tracing()


@cli.command()
def models(bundles: Bundles = None) -> None:
    """List the bundles, without loading them."""
    from rich.console import Console
    from rich.table import Table

    from dragoman.service.bundles.manifest import BundleError, read_bundle
    from dragoman.service.commands.doctor import find_bundles
    from dragoman.service.commands.evidence_line import behaviour_line

    table = Table("name", "version", "precision", "pairs", "size", "path")
    broken, evidence = [], []
    for path in find_bundles(_settings(bundles=bundles)):
        try:
            bundle = read_bundle(path, check_hashes=False)
        except BundleError as error:
            broken.append(str(error))
            continue
        pairs = ", ".join(f"{pair.source}-{pair.target}" for pair in bundle.pairs)
        megabytes = sum(record.bytes for record in bundle.files.values()) / 1e6
        table.add_row(bundle.name, bundle.version, bundle.precision, pairs, f"{megabytes:.1f} MB", str(path))
        evidence += [f"{bundle.name}: {line}" for line in [behaviour_line(bundle.evidence)] if line]
    Console().print(table if table.rows else "No bundles here.", *evidence, sep="\n")
    if broken:
        _fail("\n".join(broken))


@cli.command()
def doctor(bundles: Bundles = None) -> None:
    """Examine this machine, the installation and the bundles; exits with 1 when something is bad."""
    from rich.console import Console

    from dragoman.service.commands.doctor import examine

    console, verdicts = Console(highlight=False), []
    marks = {"good": "[green]good   [/]", "warning": "[yellow]warning[/]", "bad": "[red]bad    [/]"}
    for finding in examine(_settings(bundles=bundles)):
        console.print(f"{marks[finding.verdict]} {finding.what}: {finding.detail}", soft_wrap=True)
        verdicts.append(finding.verdict)
    raise typer.Exit(1 if "bad" in verdicts else 0)


@keys_cli.command("add")
def add_key(
    name: str,
    requests_per_minute: Annotated[int | None, typer.Option(min=0, help="Per replica; without it no limit.")] = None,
    characters_per_month: Annotated[int | None, typer.Option(min=0, help="Without it no limit.")] = None,
    file: KeysFile = None,
) -> None:
    """Make a key, and print it once: only its hash is kept."""
    from dragoman.service.api.keys import NAME, Key, digest, new_key, write_keys

    path = _keys_file(file)
    keys = _read_keys(path) if path.exists() else ()
    if not NAME.fullmatch(name):
        _fail("A name is 1 to 64 letters, digits, dots, dashes and underscores.")
    if name in {key.name for key in keys}:
        _fail(f"There is a key named {name} already; remove it first.")
    key, created = new_key(), datetime.now(UTC).isoformat(timespec="seconds")
    write_keys(path, (*keys, Key(name, digest(key), requests_per_minute, characters_per_month, created)))
    typer.echo(f"This is the key of {name}; it is not shown again.", err=True)
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
    """Remove a key; a running server forgets it at once."""
    from dragoman.service.api.keys import write_keys

    path = _keys_file(file)
    keys = _read_keys(path)
    if name not in {key.name for key in keys}:
        _fail(f"There is no key named {name}.")
    write_keys(path, (key for key in keys if key.name != name))


def _keys_file(file: Path | None) -> Path:
    path = file or _settings().keys_file
    if path is None:
        _fail("Say where the keys are: --file FILE, or DRAGOMAN_KEYS_FILE.")
    return path


def _read_keys(path: Path) -> "tuple[Key, ...]":
    from dragoman.service.api.keys import KeysError, read_keys

    try:
        return read_keys(path)
    except KeysError as error:
        _fail(str(error))


def _settings(**overrides: object) -> "Settings":
    from dragoman.service.settings import SettingsError, load_settings

    try:
        return load_settings(**overrides)
    except SettingsError as error:
        _fail(str(error))


def _fail(sentence: str) -> NoReturn:
    typer.echo(sentence, err=True)
    raise typer.Exit(2)


if __name__ == "__main__":
    main()
