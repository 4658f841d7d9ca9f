"""What networks, servers and disks do wrong: each fault is one sentence, and the bundles' folder stays clean."""

import gzip
import socket
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import zstandard

from dragoman.export import ExportError
from dragoman.export.pulling import PullError, importer_table
from dragoman.export.pulling.cache_folder import CacheFolder
from dragoman.export.pulling.mozilla_registry import MozillaRegistry
from dragoman.export.pulling.releases import RemoteFile
from dragoman.export.pulling.unpacking import unpack
from tests.pulling.published import MODEL, Answer, Published, etag, publish_mozilla, sha256
from tests.pulling.pulls import Bench


def test_a_registry_that_cannot_be_reached(bench: Bench) -> None:
    """The network is the first thing to be wrong; the sentence names the address."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, but nobody listens
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        problem = bench.problem(registry=MozillaRegistry(bench.fetcher(), url))
    assert url in problem
    assert "check the network" in problem
    assert len(bench.pauses) == 2  # three tries


def test_a_registry_that_is_no_json(bench: Bench, published: Published) -> None:
    """A proxy's login page is an answer, too."""
    published.files["/db/models.json"] = b"<html>Please log in</html>"
    assert "did not answer with JSON" in bench.problem()


@pytest.mark.parametrize("answer", [[], {"models": 3}, {"models": {"pt-en": [{"releaseStatus": "Release"}]}}, {}])
def test_a_registry_of_another_shape(bench: Bench, published: Published, answer: Any) -> None:
    """Whatever it says, there is no traceback."""
    published.put_json("/db/models.json", answer)
    assert "upgrade it, or name another --mirror" in bench.problem()


def test_a_pair_that_the_registry_lacks(bench: Bench, published: Published) -> None:
    """Near ones are offered, the other direction first."""
    publish_mozilla(published, "en-pt", "es-en", "fr-en")
    assert "has no model for pt-en; near ones are en-pt" in bench.problem()


@pytest.mark.parametrize(("status", "word"), [(404, "is not there"), (403, "may not be read"), (400, "was refused")])
def test_a_file_that_is_refused(bench: Bench, published: Published, status: int, word: str) -> None:
    """Asking again would not help: there is one try only."""
    path = publish_mozilla(published, "pt-en")
    published.faults[path] = lambda answer: answer.send(b"", status) is None
    assert word in bench.problem()
    assert published.times(path) == 1
    published.faults.clear()
    bench.succeeds()


def test_a_server_in_trouble_is_asked_again(bench: Bench, published: Published) -> None:
    """With pauses that it may choose; a server error is usually over soon."""
    path = publish_mozilla(published, "pt-en")

    def fault(answer: Answer) -> bool:
        if answer.number < 2:
            answer.send(b"", 503, Retry_After="7")
        return answer.number < 2

    published.faults[path] = fault
    bench.succeeds()
    assert bench.pauses == [7.0, 7.0]


def test_a_server_that_stays_in_trouble(bench: Bench, published: Published) -> None:
    """Tries are counted."""
    path = publish_mozilla(published, "pt-en")
    published.faults[path] = lambda answer: answer.send(b"", 500) is None
    assert "the server answers 500" in bench.problem()
    assert published.times(path) == 3


def test_a_file_that_always_ends_too_soon(bench: Bench, published: Published) -> None:
    """Content-Length promises more than ever comes; what came is kept for the next pull."""
    path = publish_mozilla(published, "pt-en")
    half = len(published.files[path]) // 2
    published.faults[path] = lambda answer: answer.send_range(max(0, half - answer.offset)) is None
    assert "could not be read" in bench.problem()
    published.faults.clear()
    bench.succeeds()
    assert (path, f"bytes={half}-") in published.asked


def test_a_file_of_the_wrong_size(bench: Bench, published: Published) -> None:
    """Longer than published."""
    path = publish_mozilla(published, "pt-en")
    good = published.files[path]
    published.files[path] = gzip.compress(MODEL + b"more")
    assert f"where {len(MODEL)} are published" in bench.problem()
    published.files[path] = good
    bench.succeeds()


def test_a_file_with_the_wrong_hash(bench: Bench, published: Published) -> None:
    """Of the right size, and not what was published: never used, and downloaded again next time."""
    path = publish_mozilla(published, "pt-en")
    good = published.files[path]
    published.files[path] = gzip.compress(MODEL[::-1])
    assert "does not have the published SHA-256" in bench.problem()
    published.files[path] = good
    bench.succeeds()


@pytest.mark.parametrize(
    "broken", [b"not gzip at all", gzip.compress(MODEL)[:-40], gzip.compress(MODEL)[:50] + b"x" * 99]
)
def test_a_broken_gzip(bench: Bench, published: Published, broken: bytes) -> None:
    """Complete by its length, and still not readable."""
    path = publish_mozilla(published, "pt-en")
    good, published.files[path] = published.files[path], broken
    assert "cannot be unpacked" in bench.problem()
    published.files[path] = good
    bench.succeeds()


@pytest.mark.parametrize("cut", [slice(0, -5), slice(4, None), slice(0, 0)])
def test_a_broken_zstd(bench: Bench, published: Published, cut: slice) -> None:
    """A frame without its end is read without complaint by zstandard itself."""
    packed = zstandard.ZstdCompressor().compress(MODEL)[cut]
    published.files["/model.bin.zst"] = packed
    bench.cache.mkdir()
    file = RemoteFile(
        f"{published.url}/model.bin.zst", "model.bin", len(packed), sha256(packed), len(MODEL), sha256(MODEL)
    )
    with pytest.raises(PullError, match=r"cannot be unpacked|bytes where"):
        _download_and_unpack(bench, file)


def _download_and_unpack(bench: Bench, file: RemoteFile) -> None:
    cache = CacheFolder(bench.cache)
    cache.make()
    unpack(file, bench.fetcher().download(file, cache.place_of(file)), bench.cache)


def test_a_server_that_does_not_answer(bench: Bench, published: Published) -> None:
    """Waiting has an end, and it is said what was waited for."""
    path = publish_mozilla(published, "pt-en")
    ended = threading.Event()
    published.faults[path] = lambda answer: ended.wait(20)
    problem = bench.problem(seconds=0.2)
    ended.set()
    assert "it took too long to answer" in problem


def test_an_endless_redirect(bench: Bench, published: Published) -> None:
    """Some redirects are normal; these are not."""
    path = publish_mozilla(published, "pt-en")
    published.faults[path] = lambda answer: answer.send(b"", 302, Location=path) is None
    assert "redirects without end" in bench.problem()


def test_one_redirect_is_followed(bench: Bench, published: Published) -> None:
    """Registries keep their files elsewhere."""
    path = publish_mozilla(published, "pt-en")
    published.files["/elsewhere"] = published.files.pop(path)
    published.faults[path] = lambda answer: answer.send(b"", 302, Location="/elsewhere") is None
    bench.succeeds()


def test_a_server_that_ignores_ranges(bench: Bench, published: Published) -> None:
    """It sends all of it with 200; the first half must not be there twice."""
    path = publish_mozilla(published, "pt-en")

    def fault(answer: Answer) -> bool:
        whole = {"ETag": etag(answer.body)}
        answer.send(answer.body[: 200 if answer.number == 0 else None], length=len(answer.body), **whole)
        return True

    published.faults[path] = fault
    bench.succeeds()
    assert (path, "bytes=200-") in published.asked


def test_a_file_that_changes_between_attempts(bench: Bench, published: Published) -> None:
    """If-Range: halves of two versions are never joined."""
    path = publish_mozilla(published, "pt-en")
    good = published.files[path]
    published.files[path] = gzip.compress(MODEL[::-1])

    def fault(answer: Answer) -> bool:
        if answer.number == 0:
            answer.send_range(150)
            published.files[path] = good
        return answer.number == 0

    published.faults[path] = fault
    bench.succeeds()
    assert (path, "bytes=150-") in published.asked


def test_a_disk_without_room(bench: Bench, published: Published) -> None:
    """Seen before anything is downloaded."""
    path = publish_mozilla(published, "pt-en")
    bench.free = lambda folder: 1_000_000
    assert "has 1 MB left" in bench.problem()
    assert published.times(path) == 0


def test_a_disk_that_fills_up(bench: Bench, published: Published) -> None:
    """Somebody else may fill it meanwhile; the kernel's own refusal, from /dev/full."""
    path = publish_mozilla(published, "pt-en")
    cache = CacheFolder(bench.cache)
    cache.make()
    place = cache.place_of(RemoteFile(published.url + path, "model"))
    place.with_name(place.name + ".part").symlink_to("/dev/full")
    assert "is full: free some" in bench.problem()


@pytest.mark.parametrize("error", [ExportError("the model has 3 heads: take another"), ValueError("bad magic")])
def test_an_importer_that_refuses(bench: Bench, published: Published, error: Exception) -> None:
    """With its own sentence, or whatever a foreign file made it raise; half a bundle is removed."""
    publish_mozilla(published, "pt-en")

    def refuse(folder: Path, out: Path, *others: Any) -> Any:
        out.mkdir()
        (out / "half").write_text("half")
        raise error

    bench.importer = refuse
    assert str(error) in bench.problem()


def test_an_importer_that_is_not_installed(bench: Bench, published: Published, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said before anything is downloaded, with what to install."""
    monkeypatch.setitem(importer_table.IMPORTERS, "firefox", ("tests.pulling.needs_onnx", "import_it"))
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(PullError, match=r"needs onnx: pip install 'dragoman\[import\]'"):
        importer_table.find_importer("firefox")


def test_a_folder_that_cannot_be_written(bench: Bench, published: Published) -> None:
    """Before anything is downloaded."""
    publish_mozilla(published, "pt-en")
    (bench.folder / "file").write_text("no folder")
    bench.to = bench.folder / "file" / "bundles"
    (outcome,) = bench.pull("pt-en")
    assert "choose another folder with --to" in outcome.problem
    assert published.asked == []


def test_one_bad_pair_does_not_keep_the_others_away(bench: Bench, published: Published) -> None:
    """Each pair has its own result."""
    path = publish_mozilla(published, "pt-en", "es-en", "fr-en")
    del published.files[path]
    assert [outcome.result for outcome in bench.pull("pt-en", "es-en", "xx-yy", "fr-en")] == [
        "failed",
        "installed",
        "failed",
        "installed",
    ]
    assert sorted(path.name for path in bench.to.iterdir()) == ["es-en", "fr-en"]
