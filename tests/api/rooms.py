"""The whole service but for the network: real catalog, translator, cache and engine, over runners that copy or reverse.

What a bundle's runner does is written in its files: see `tests/bundles/fakes.py`.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from dragoman.service.assembly import Parts, build_parts
from dragoman.service.bundles.manifest import WEIGHTS, Bundle
from tests.bundles.fakes import fake_runner, write_bundle
from tests.engine.reverse_runner import FakeRunner


class Runners:
    """Opens runners for fake bundles, and remembers those of each bundle."""

    def __init__(self) -> None:
        self.of: dict[str, FakeRunner] = {}
        self.before_step: Callable[[int], None] = lambda step: None

    def __call__(self, bundle: Bundle, max_rows: int) -> Sequence[FakeRunner]:
        runner = fake_runner(bundle.file(WEIGHTS).read_text(), max_rows, bundle.limits.max_source_tokens)
        runner.before_step = lambda step: self.before_step(step)
        self.of[f"{bundle.name} {bundle.version}"] = runner
        return [runner]

    def behave(self, label: str, kind: str) -> None:
        """From now on the bundle's runner does something else, which its golden sentences would not have passed."""
        self.of[label]._log_probs = fake_runner(kind)._log_probs

    @property
    def build(self) -> Callable[..., Parts]:
        """What `create_app` takes."""
        return partial(build_parts, open_runners=self)


def write_bundles(path: Path, kind: str = "reverse", version: str = "1") -> Path:
    """A directory with both directions."""
    write_bundle(path / "pt-en", kind, [("pt", "en")], version)
    write_bundle(path / "en-pt", kind, [("en", "pt")], version)
    return path
