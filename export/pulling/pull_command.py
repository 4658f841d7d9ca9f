"""What `dragoman pull` does with its options; `service/commands/pull.py` declares them and finds this file by name."""

import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from dragoman.export.pulling import PullError
from dragoman.export.pulling.argos_registry import ArgosRegistry
from dragoman.export.pulling.cache_folder import CacheFolder, default_cache
from dragoman.export.pulling.fetching import Fetcher, open_client
from dragoman.export.pulling.mozilla_registry import MozillaRegistry
from dragoman.export.pulling.opus_registry import OpusRegistry
from dragoman.export.pulling.pull_tables import TerminalWatcher, listing, summary
from dragoman.export.pulling.puller import Places, Puller
from dragoman.export.pulling.releases import Registry, same_pair
from dragoman.service.bundles.manifest import Precision

_TERMINATED = 128 + signal.SIGTERM


@dataclass(frozen=True)
class PullOptions:
    pairs: Sequence[str]
    registry: str
    to: Path
    cache: Path | None
    mirror: str | None
    architecture: str | None
    precision: Precision
    list_only: bool


def run(options: PullOptions) -> int:
    """The exit code: 0 where every pair is there, 1 where one is not."""
    signal.signal(signal.SIGTERM, _end)
    console = Console(stderr=False, highlight=False)
    with open_client() as client:
        fetcher = Fetcher(client)
        try:
            registry = registry_of(options, fetcher)
            if options.list_only:
                return _list(options, registry, console)
        except PullError as error:
            console.print(str(error), markup=False, soft_wrap=True)
            return 1
        return _pull(options, registry, fetcher, console)


def registry_of(options: PullOptions, fetcher: Fetcher) -> Registry:
    if options.registry == "mozilla":
        return MozillaRegistry(fetcher, options.mirror, options.architecture)
    if options.registry == "opus":
        return OpusRegistry(options.mirror)
    if options.registry == "argos":
        return ArgosRegistry(fetcher, options.mirror)
    raise PullError(f"{options.registry} is not a registry: choose mozilla, opus or argos")


def _list(options: PullOptions, registry: Registry, console: Console) -> int:
    found = [
        release
        for release in registry.releases()
        if not options.pairs or any(same_pair(release.pair, pair) for pair in options.pairs)
    ]
    table = listing(found, options.to)
    console.print(table if found else "The registry has none of these pairs.")
    return 0 if found else 1


def _pull(options: PullOptions, registry: Registry, fetcher: Fetcher, console: Console) -> int:
    watcher = TerminalWatcher(console)
    places = Places(options.to, CacheFolder(options.cache or default_cache()))
    with watcher.progress:
        outcomes = Puller(registry, fetcher, places, watcher, precision=options.precision).pull_all(options.pairs)
    console.print(summary(outcomes))
    if all(outcome.failed for outcome in outcomes):
        return 1
    console.print(f"A server that runs with --bundles {options.to} has them now.", markup=False, soft_wrap=True)
    return 1 if any(outcome.failed for outcome in outcomes) else 0


def _end(number: int, frame: object) -> None:
    """SIGTERM unwinds like Ctrl-C, so that everything unfinished is removed."""
    raise SystemExit(_TERMINATED)
