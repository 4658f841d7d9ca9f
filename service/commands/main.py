"""`dragoman`: the list of its commands, each in a file of its own.

Commands import what they need when they run, so that every one of them starts quickly.
"""

from typing import Annotated

_INTERRUPTED = 130  # as the shell counts signals

try:  # Ctrl-C during the start most likely arrives during these imports, before `main` can catch it
    import typer

    from dragoman.service.commands.doctor import doctor
    from dragoman.service.commands.keys import keys_cli
    from dragoman.service.commands.models import models
    from dragoman.service.commands.pull import pull
    from dragoman.service.commands.serve import serve
    from dragoman.service.commands.translate import translate
except KeyboardInterrupt:
    raise SystemExit(_INTERRUPTED) from None

cli = typer.Typer(name="dragoman", no_args_is_help=True, add_completion=False, help="A translation server.")
cli.command()(serve)
cli.command()(translate)
cli.command()(models)
cli.command()(pull)
cli.command()(doctor)
cli.add_typer(keys_cli, name="keys")


def main() -> None:
    """The console script."""
    try:
        cli()
    except KeyboardInterrupt:
        raise SystemExit(_INTERRUPTED) from None


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"dragoman {version('dragoman')}")
        raise typer.Exit


@cli.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """The options of `dragoman` itself, before any command."""


if __name__ == "__main__":
    main()
