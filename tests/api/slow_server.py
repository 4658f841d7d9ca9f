"""A server as `dragoman serve` starts it, but with a fake translator that takes a while: a process to send signals to.

Settings come from the environment; the first argument is the seconds that a translation takes. Each one that begins is
a line on standard output.
"""

import asyncio
import sys

from dragoman.service.app import create_app
from dragoman.service.commands.serve import announce
from dragoman.service.process.server import make_server
from dragoman.service.settings import load_settings
from dragoman.service.telemetry.logs import configure_logs
from tests.api.fakes import FakeTranslator, fake_parts


def main() -> None:
    settings = load_settings()
    configure_logs(settings.log_level, settings.log_format)
    translator = FakeTranslator()

    async def work() -> None:
        print("begun", flush=True)
        await asyncio.sleep(float(sys.argv[1]))

    translator.before = work
    app = create_app(settings, build=fake_parts(translator))
    make_server(app, settings, announce=lambda sockets: announce(settings, sockets)).run()


if __name__ == "__main__":
    main()
