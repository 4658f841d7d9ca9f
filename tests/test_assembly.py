"""The graphs of a bundle are opened once for all who run them, and again when any of its files is another."""

from dataclasses import replace

from dragoman.service.assembly import OpenSessions
from dragoman.service.bundles.manifest import LEAP, Bundle, FileRecord


def test_sessions_are_shared_until_a_graph_changes(tiny_bundle: Bundle) -> None:
    """A bundle that was exported again has the same weights, and other graphs to prove and to serve."""
    opened = OpenSessions()
    sessions = opened.of(tiny_bundle)
    assert opened.of(replace(tiny_bundle)) is sessions
    changed = replace(tiny_bundle, files={**tiny_bundle.files, LEAP: FileRecord("0" * 64, 1)})
    assert opened.of(changed) is not sessions
