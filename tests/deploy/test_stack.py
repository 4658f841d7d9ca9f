"""Real processes: a Prometheus that scrapes a server under load, and a Secret that changes under a server."""

import asyncio
import json
import tempfile
from pathlib import Path

import pytest

from deploy.demo.__main__ import demonstrate
from deploy.demo.drawing import draw
from deploy.demo.processes import any_bundles, missing_tools
from dragoman.service.api.keys import KeyRing, digest
from dragoman.service.catalog.catalog import ReloadReport
from dragoman.service.process.reload import Reloader

LOAD_SECONDS, RATE = 8.0, 10.0


NO_PROMETHEUS = "prometheus is not installed (Debian: apt install prometheus)"


@pytest.mark.skipif(bool(missing_tools("prometheus")), reason=NO_PROMETHEUS)
def test_every_panel_rule_and_alert_has_data_under_load(tmp_path: Path) -> None:
    """A real Prometheus, a real server: an expression that returns nothing here returns nothing in an incident."""
    with tempfile.TemporaryDirectory() as folder:
        found, empty, report, start = demonstrate(Path(folder), LOAD_SECONDS, RATE, any_bundles(Path(folder)))
    assert set(report.statuses) == {200}
    assert not empty
    draw(found, start, tmp_path / "dashboard.png", "test")
    assert (tmp_path / "dashboard.png").stat().st_size > 50_000


class NoBundles:
    def changed(self) -> bool:
        return False

    def reload(self) -> ReloadReport:
        return ReloadReport()


def write_secret(directory: Path, version: str, content: str) -> None:
    """As the kubelet does: a new directory, `..data` moved to it, and names that point through `..data`."""
    (directory / f"..{version}").mkdir()
    (directory / f"..{version}" / "keys.json").write_text(content)
    (directory / "..data.new").symlink_to(f"..{version}")
    (directory / "..data.new").rename(directory / "..data")
    if not (directory / "keys.json").is_symlink():
        (directory / "keys.json").symlink_to("..data/keys.json")


async def test_keys_of_a_secret_rotate_without_a_restart(tmp_path: Path) -> None:
    """The kubelet swaps a symbolic link that the keys file itself is not in; the server must notice all the same."""
    old, new = ({"keys": [{"name": name, "sha256": digest(name)}]} for name in ("old", "new"))
    write_secret(tmp_path, "1", json.dumps(old))
    keys, reloaded = KeyRing(tmp_path / "keys.json"), asyncio.Event()
    reloader = Reloader(NoBundles(), keys, published=lambda report: reloaded.set())
    tasks = [asyncio.create_task(work) for work in (reloader.run(), reloader.watch_keys(tmp_path / "keys.json"))]
    try:
        async with asyncio.timeout(30):
            for attempt in range(100):  # the watch may begin after the first changes
                write_secret(tmp_path, f"2-{attempt}", json.dumps(new))
                try:
                    await asyncio.wait_for(reloaded.wait(), 0.5)
                except TimeoutError:
                    continue
                break
        assert keys.find("new") is not None
        assert keys.find("old") is None
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
