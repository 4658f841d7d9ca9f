"""Registries in their published formats, and which release of a pair is taken."""

import io
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import zstandard
from typer.testing import CliRunner

from dragoman.export.pulling import PullError
from dragoman.export.pulling.argos_registry import ArgosRegistry
from dragoman.export.pulling.mozilla_registry import MozillaRegistry
from dragoman.export.pulling.opus_registry import OpusRegistry
from dragoman.export.pulling.releases import RemoteFile, language, version_key
from dragoman.export.pulling.unpacking import unpack
from dragoman.service.commands.main import cli
from tests.bundles.fakes import write_bundle
from tests.pulling.published import MODEL, Published, entry, publish_mozilla, sha256
from tests.pulling.pulls import Bench

RECORDS = "/v1/buckets/main/collections/translations-models-v2/records"


def choose(bench: Bench, published: Published, *entries: dict[str, Any], architecture: str | None = None) -> Any:
    published.put_json("/db/models.json", {"models": {"pt-en": list(entries)}})
    return MozillaRegistry(bench.fetcher(), published.url, architecture).find("pt-en")


def test_a_release_for_all_comes_first(bench: Bench, published: Published) -> None:
    """A model for telephones is smaller; one that was not released is not taken at all."""
    android = entry("pt-en", releaseStatus="Release Android", architecture="tiny")
    desktop = entry("pt-en", releaseStatus="Release Desktop", architecture="base")
    unreleased = entry("pt-en", releaseStatus=None, architecture="big")
    assert choose(bench, published, unreleased, android, desktop, entry("pt-en")).architecture == "base-memory"
    assert choose(bench, published, unreleased, android, desktop).architecture == "base"
    assert choose(bench, published, android).architecture == "tiny"
    with pytest.raises(PullError, match="has no model for pt-en"):
        choose(bench, published, unreleased)


def test_an_architecture_can_be_asked_for(bench: Bench, published: Published) -> None:
    """Smaller and faster, for those who want it."""
    both = entry("pt-en"), entry("pt-en", architecture="tiny")
    assert choose(bench, published, *both, architecture="tiny").architecture == "tiny"


def test_codes_are_written_as_bundles_write_them(bench: Bench, published: Published) -> None:
    """Mozilla's zh_hant is zh-Hant here, and may be asked for either way."""
    publish_mozilla(published, "en-zh_hant")
    registry = MozillaRegistry(bench.fetcher(), published.url)
    assert registry.find("en-zh_hant").pair == registry.find("EN-zh-Hant").pair == "en-zh-Hant"
    assert language("pt_br") == "pt-BR"


def test_versions_have_an_order() -> None:
    """As Firefox counts them: an alpha comes before its release."""
    ordered = ["1.9", "1.10", "2.0a1", "2.0a2", "2.0b1", "2.0", "10.0"]
    assert sorted(sorted(ordered), key=version_key) == ordered


def record(kind: str, name: str, content: bytes, **changes: Any) -> tuple[dict[str, Any], bytes]:
    packed = zstandard.ZstdCompressor().compress(content)
    found = {
        "name": name,
        "version": "3.0",
        "fileType": kind,
        "attachment": {
            "hash": sha256(packed),
            "size": len(packed),
            "filename": f"{name}.zst",
            "location": f"main-workspace/translations-models-v2/{sha256(packed)[:8]}.zst",
            "mimetype": "application/zstd",
        },
        "architecture": "base-memory",
        "sourceLanguage": "pt",
        "targetLanguage": "en",
        "decompressedHash": sha256(content),
        "decompressedSize": len(content),
        "filter_expression": "",
        **changes,
    }
    return found, packed


def test_remote_settings_are_read_and_pulled(bench: Bench, published: Published) -> None:
    """One record a file, zstd, both hashes; the newest version that has all of its files."""
    made = [
        record("model", "model.pten.intgemm.alphas.bin", MODEL),
        record("vocab", "vocab.pten.spm", b"vocabulary"),
        record("model", "model.pten.intgemm.alphas.bin", b"old", version="2.0"),
        record("vocab", "vocab.pten.spm", b"old", version="2.0"),
        record("model", "model.pten.intgemm.alphas.bin", b"incomplete", version="4.0"),
        record(
            "model", "model.pten.intgemm.alphas.bin", b"n", version="5.0", filter_expression="env.channel == 'nightly'"
        ),
        record("vocab", "vocab.pten.spm", b"n", version="5.0", filter_expression="env.channel == 'nightly'"),
    ]
    published.put_json(RECORDS, {"data": [each for each, _ in made]})
    published.put_json("/v1/", {"capabilities": {"attachments": {"base_url": f"{published.url}/cdn/"}}})
    for each, packed in made:
        published.files[f"/cdn/{each['attachment']['location']}"] = packed
    registry = MozillaRegistry(bench.fetcher(), published.url + RECORDS)
    assert registry.find("pt-en").release == "3.0"
    (outcome,) = bench.pull("pt-en", registry=registry)
    assert outcome.result == "installed", outcome.problem


def argos_package() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("pt_en/metadata.json", "{}")
        archive.writestr("pt_en/model/model.bin", MODEL)
        archive.writestr("pt_en/sentencepiece.model", b"pieces")
    return buffer.getvalue()


def test_an_argos_package_is_found_and_unpacked(bench: Bench, published: Published, tmp_path: Path) -> None:
    """A zip with one folder in it; the newest version, by HTTP and not by IPFS."""
    published.files["/pt_en-1_10.argosmodel"] = argos_package()
    package = {"from_code": "pt", "to_code": "en", "type": "translate"}
    links = ["ipfs://Qm", f"{published.url}/pt_en-1_10.argosmodel"]
    old = {**package, "package_version": "1.9", "links": [f"{published.url}/old"]}
    published.put_json("/index.json", [{**package, "package_version": "1.10", "links": links}, old, {"type": "sbd"}])
    (release,) = ArgosRegistry(bench.fetcher(), published.url).releases()
    assert (release.pair, release.release, release.kind) == ("pt-en", "1.10", "ctranslate2")
    target = bench.fetcher().download(release.files[0], tmp_path / "package.argosmodel")
    (tmp_path / "out").mkdir()
    unpack(release.files[0], target, tmp_path / "out")
    assert (tmp_path / "out" / "model" / "model.bin").read_bytes() == MODEL
    assert (tmp_path / "out" / "sentencepiece.model").read_bytes() == b"pieces"


@pytest.mark.parametrize("name", ["../evil", "/evil", "pt_en/../../evil", "a\\..\\evil"])
def test_a_package_cannot_write_outside_of_its_folder(
    tmp_path: Path, bench: Bench, published: Published, name: str
) -> None:
    """A zip may name any path."""
    with zipfile.ZipFile(tmp_path / "x.argosmodel", "w") as archive:
        archive.writestr(name, b"evil")
        archive.writestr("pt_en/metadata.json", "{}")
    (tmp_path / "in" / "out").mkdir(parents=True)
    with pytest.raises(PullError, match="outside of it"):
        unpack(RemoteFile("http://x/x.argosmodel", "x.argosmodel"), tmp_path / "x.argosmodel", tmp_path / "in" / "out")
    assert not list(tmp_path.rglob("evil"))


def test_opus_models_come_from_hugging_face_or_a_mirror(bench: Bench, published: Published) -> None:
    """The hub says what a repository holds; large files have hashes there."""
    name, sha = "Helsinki-NLP/opus-mt-pt-en", "0123456789abcdef0123456789abcdef01234567"
    siblings = [
        {
            "rfilename": "pytorch_model.bin",
            "size": len(MODEL),
            "lfs": {"sha256": sha256(MODEL), "size": len(MODEL), "pointerSize": 130},
        },
        {"rfilename": "vocab.json", "size": 2},
        {"rfilename": "README.md", "size": 9},
    ]
    info = {
        "id": name,
        "modelId": name,
        "sha": sha,
        "siblings": siblings,
        "tags": [],
        "cardData": {"license": "cc-by-4.0"},
    }
    published.put_json(f"/api/models/{name}", info)
    release = OpusRegistry(published.url).find("pt-en")
    assert (release.licence, release.release, release.kind) == ("cc-by-4.0", sha[:12], "marian")
    assert [(file.name, file.sha256) for file in release.files] == [
        ("vocab.json", None),
        ("pytorch_model.bin", sha256(MODEL)),
    ]
    assert release.files[0].url == f"{published.url}/{name}/resolve/{sha}/vocab.json"


def test_the_list_shows_what_is_installed(bench: Bench, published: Published, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pair, architecture, size, licence, and what is there already."""
    monkeypatch.setenv("COLUMNS", "200")
    publish_mozilla(published, "pt-en", "es-en")
    bench.succeeds()
    answer = CliRunner().invoke(cli, ["pull", "--list", "--mirror", published.url, "--to", str(bench.to)])
    assert answer.exit_code == 0, answer.output
    (line,) = (line for line in answer.output.splitlines() if "pt-en" in line)
    assert all(word in line for word in ("mozilla", "base-memory", "0.1 MB", "MPL-2.0", "yes"))
    assert "es-en" in answer.output


def test_models_show_licence_and_origin(bench: Bench, published: Published, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who serves a model must be able to say whose it is; a manifest without one says nothing."""
    monkeypatch.setenv("COLUMNS", "200")
    publish_mozilla(published, "pt-en")
    bench.succeeds()
    write_bundle(bench.to / "own", pairs=[("en", "pt")])
    answer = CliRunner().invoke(cli, ["models", "--bundles", str(bench.to)])
    assert f"pt-en: licence MPL-2.0, from mozilla base-memory {sha256(MODEL)[:12]}, {published.url}" in answer.output
    assert "own: licence" not in answer.output


def test_serving_waits_for_the_first_pair_only_where_there_is_none(bench: Bench, published: Published) -> None:
    """And says so where none can be pulled, instead of a server without a model."""
    options = f"--mirror {published.url} --cache {bench.cache}"
    answer = CliRunner().invoke(
        cli, ["serve", "--pull", "pt-en", "--bundles", str(bench.to), "--pull-options", options]
    )
    assert answer.exit_code == 2
    assert "there is nothing to serve" in answer.output
    assert published.times("/db/models.json") == 1


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The serving image has neither httpx nor the exporter."""
    for name in [name for name in sys.modules if name.startswith("dragoman.export.pulling")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "httpx", None)
    answer = CliRunner().invoke(cli, ["pull", "pt-en"])
    assert answer.exit_code == 2
    assert "pip install 'dragoman[import]'" in answer.output
