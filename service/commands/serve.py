"""`dragoman serve`: a server process from the settings, from its first log line to its address on the terminal."""

import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from dragoman.service.commands.configuration import Bundles, fail, settings_with
from dragoman.service.commands.pull import pulling_beside

if TYPE_CHECKING:
    from dragoman.service.assembly import Parts
    from dragoman.service.settings import Settings
    from dragoman.service.telemetry.tracing import Tracing


def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on [DRAGOMAN_HOST]")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on [DRAGOMAN_PORT]")] = None,
    bundles: Bundles = None,
    pull: Annotated[
        list[str] | None,
        typer.Option(help="Pairs to pull beside serving, such as pt-en,es-en; served as soon as they are there."),
    ] = None,
    pull_options: Annotated[str, typer.Option(help="More options for that pull, such as '--mirror URL'.")] = "",
) -> None:
    """Serve bundles over HTTP. All other settings are environment variables; the README lists them."""
    from dragoman.service.process import interpreter

    with pulling_beside(pull, bundles, pull_options) as folder, interpreter.serving():
        run_server(settings_with(host=host, port=port, bundles=folder))


def run_server(settings: "Settings", build: "Callable[..., Parts] | None" = None) -> None:
    """Serve until a signal ends it; `build` makes the translator in another way than `assembly.build_parts`."""
    from dragoman.service.api.keys import KeysError
    from dragoman.service.app import create_app
    from dragoman.service.assembly import build_parts
    from dragoman.service.process.server import make_server
    from dragoman.service.telemetry.logs import configure_logs

    configure_logs(settings.log_level, settings.log_format)
    try:
        app = create_app(settings, build=build or build_parts, tracing=_tracing(settings))
    except (KeysError, ImportError) as error:
        fail(str(error))
    make_server(app, settings, announce=lambda sockets: _begin(settings, sockets)).run()


def _begin(settings: "Settings", sockets: Sequence[socket.socket]) -> None:
    """The bundles are loaded, and the server listens."""
    from dragoman.service.process import interpreter

    interpreter.settle()
    announce(settings, sockets)


def announce(settings: "Settings", sockets: Sequence[socket.socket]) -> None:
    """Print where the server listens; scripts read the first line."""
    from dragoman.service.api.pages import has_playground

    host, port = sockets[0].getsockname()[:2]
    shown = "localhost" if host in ("127.0.0.1", "0.0.0.0", "::", "::1") else f"[{host}]" if ":" in host else host
    url = f"http://{shown}:{port}"
    lines = {
        "page": url + "/" if has_playground(settings) else None,
        "API docs": url + "/docs" if settings.pages else None,
        "metrics": url + "/metrics",
    }
    print(f"Dragoman serves at {url}", *(f"  {name:8} {at}" for name, at in lines.items() if at), sep="\n", flush=True)


def _tracing(settings: "Settings") -> "Tracing | None":
    if not settings.tracing:
        return None
    from dragoman.service.telemetry.tracing import open_tracing

    return open_tracing()
