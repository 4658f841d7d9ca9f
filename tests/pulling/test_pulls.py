"""Whole pulls: what is kept, replaced, locked and resumed; kills of real processes; a server that picks a bundle up."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dragoman.export.pulling import PullError
from dragoman.export.pulling.cache_folder import CacheFolder
from dragoman.export.pulling.releases import RemoteFile
from dragoman.service.bundles.manifest import read_bundle
from tests.pulling.published import MODEL, Answer, Published, publish_mozilla, serving
from tests.pulling.pulls import Bench, import_fake

ROOT = Path(__file__).parents[2]
EMBEDDED = ROOT / "service" / "embedded"


def test_a_bundle_says_where_it_comes_from(bench: Bench, published: Published) -> None:
    """Licence, address and the hashes of the original files; the manifest still matches its files."""
    publish_mozilla(published, "pt-en")
    bench.succeeds()
    origin = read_bundle(bench.to / "pt-en").training["origin"]
    assert (origin["registry"], origin["licence"], origin["architecture"]) == ("mozilla", "MPL-2.0", "base-memory")
    assert origin["address"].startswith(published.url)
    assert set(origin["files"]) == {"model.pten.intgemm.alphas.bin", "lex.50.50.pten.s2t.bin", "vocab.pten.spm"}


def test_a_second_pull_downloads_nothing(bench: Bench, published: Published) -> None:
    """The same release is there already."""
    path = publish_mozilla(published, "pt-en")
    bench.succeeds()
    assert bench.pull("pt-en")[0].result == "already there"
    assert published.times(path) == 1


def test_complete_files_are_not_downloaded_again(bench: Bench, published: Published) -> None:
    """An importer that failed costs no second download."""
    path = publish_mozilla(published, "pt-en")

    def refuse(*others: Any) -> Any:
        raise ValueError("not today")

    bench.importer = refuse
    bench.problem()
    bench.importer = import_fake
    bench.succeeds()
    assert published.times(path) == 1


def test_a_newer_release_replaces_the_older(bench: Bench, published: Published) -> None:
    """Under the same name, in one step."""
    publish_mozilla(published, "pt-en")
    bench.succeeds()
    manifest = bench.to / "pt-en" / "bundle.json"
    record = json.loads(manifest.read_text())
    record["training"]["origin"]["release"] = "older"
    manifest.write_text(json.dumps(record))
    assert bench.pull("pt-en")[0].result == "replaced"
    assert [path.name for path in bench.to.iterdir()] == ["pt-en"]


def test_two_pulls_at_once_do_not_spoil_one_another(bench: Bench, published: Published) -> None:
    """The second waits for the first, and finds everything downloaded."""
    path = publish_mozilla(published, "pt-en")
    begun, go_on = threading.Event(), threading.Event()

    def slow(answer: Answer) -> bool:
        begun.set()
        go_on.wait(20)
        return False

    published.faults[path] = slow
    results: list[str] = []
    threads = [threading.Thread(target=lambda: results.append(bench.pull("pt-en")[0].result)) for _ in range(2)]
    threads[0].start()
    assert begun.wait(20)
    threads[1].start()
    while not any("waiting for another pull" in sentence for sentence in bench.listener.sentences):
        assert threads[1].is_alive()
    go_on.set()
    for thread in threads:
        thread.join(20)
    assert len(results) == 2
    assert "failed" not in results
    assert published.times(path) == 1
    assert [path.name for path in bench.to.iterdir()] == ["pt-en"]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=st.binary(min_size=1, max_size=3000), cuts=st.lists(st.integers(0, 3000), max_size=6))
def test_a_file_is_the_same_wherever_it_was_interrupted(tmp_path: Path, body: bytes, cuts: list[int]) -> None:
    """Each answer breaks off at its cut point, counted from where it began; the file comes out whole."""
    with serving() as published:
        published.files["/file"] = body

        def fault(answer: Answer) -> bool:
            if answer.number < len(cuts):
                answer.send_range(cuts[answer.number])
            return answer.number < len(cuts)

        published.faults["/file"] = fault
        bench = Bench(published, tmp_path)
        cache = CacheFolder(tmp_path / published.url.rpartition(":")[2])
        cache.make()
        file = RemoteFile(f"{published.url}/file", "file")
        fetcher = bench.fetcher()
        for _ in range(len(cuts) + 1):  # a run gives up after three fruitless tries; the next one goes on
            with suppress(PullError):
                target = fetcher.download(file, cache.place_of(file))
                break
        assert target.read_bytes() == body
        assert sorted(path.name for path in target.parent.iterdir()) == ["file"]
        target.unlink()


def start(bench: Bench, *options: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "tests.pulling.pull_process", *options]
    places = ["--mirror", bench.published.url, "--to", str(bench.to), "--cache", str(bench.cache)]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("DRAGOMAN_")}
    return subprocess.Popen([*command, "pull", "pt-en", *places], cwd=ROOT, stdout=subprocess.PIPE, env=environ)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_pull_that_is_killed_while_downloading_goes_on(
    bench: Bench, published: Published, number: signal.Signals
) -> None:
    """What has arrived stays; the bundles' folder has seen nothing."""
    path = publish_mozilla(published, "pt-en")
    ended = threading.Event()

    def stop_halfway(answer: Answer) -> bool:
        answer.send_range(300)
        answer.handler.wfile.flush()
        return ended.wait(30)

    published.faults[path] = stop_halfway
    process = start(bench, "quick")
    while not any(part.stat().st_size >= 300 for part in bench.cache.glob("downloads/*/model*.part")):
        assert process.poll() is None
    process.send_signal(number)
    process.communicate(timeout=20)
    ended.set()
    assert not bench.to.exists() or list(bench.to.iterdir()) == []
    published.faults.clear()
    bench.succeeds()
    assert (path, "bytes=300-") in published.asked


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_pull_that_is_killed_while_importing_goes_on(
    bench: Bench, published: Published, number: signal.Signals
) -> None:
    """No server sees the half bundle, and the next pull removes what SIGKILL left."""
    path = publish_mozilla(published, "pt-en")
    process = start(bench, "stuck")
    while not list(bench.to.glob(".pulling-pt-en/*/half")):
        assert process.poll() is None
    process.send_signal(number)
    process.communicate(timeout=20)
    left = [".pulling-pt-en"] if number == signal.SIGKILL else []
    assert [path.name for path in bench.to.iterdir()] == left
    bench.succeeds()
    assert published.times(path) == 1


def test_the_command_says_what_it_did(bench: Bench, published: Published) -> None:
    """A summary, and the exit code of the worst."""
    publish_mozilla(published, "pt-en")
    process = start(bench, "quick")
    shown = process.communicate(timeout=60)[0].decode()
    assert process.returncode == 0
    assert "installed" in shown
    assert "has them now" in shown


def test_a_running_server_picks_the_bundle_up(bench: Bench, published: Published) -> None:
    """A real server on the folder, a pull into it, and the new pair translates without a restart."""
    publish_mozilla(published, "en-pt")
    shutil.copytree(EMBEDDED / "pt-en", bench.to / "pt-en")

    def import_embedded(folder: Path, out: Path, *others: Any) -> Any:
        shutil.copytree(EMBEDDED / "en-pt", out)

    bench.importer = import_embedded
    environ = {name: value for name, value in os.environ.items() if not name.startswith("DRAGOMAN_")}
    command = [
        sys.executable,
        "-m",
        "dragoman.service.commands.main",
        "serve",
        "--port",
        "0",
        "--bundles",
        str(bench.to),
    ]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environ, cwd=ROOT)
    try:
        assert server.stdout is not None
        url = server.stdout.readline().decode().split()[-1].replace("localhost", "127.0.0.1")
        asked = {"text": "The cat sleeps.", "source": "en", "target": "pt"}
        assert httpx.post(f"{url}/v1/translate", json=asked).status_code == 404
        assert bench.pull("en-pt")[0].result == "installed"
        while (answer := httpx.post(f"{url}/v1/translate", json=asked, timeout=30)).status_code == 404:
            assert server.poll() is None
        assert answer.json()["translations"][0]["text"]
    finally:
        server.kill()
        server.communicate()


def test_what_is_served_is_the_model_that_was_published(bench: Bench, published: Published) -> None:
    """The importer sees exactly the published bytes; it would refuse others."""
    publish_mozilla(published, "pt-en", model=MODEL + b"x")
    assert "cannot be imported" in bench.problem()
