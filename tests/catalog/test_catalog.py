"""Only proven bundles serve, and a change never leaves a pair without one that did."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from dragoman.service.bundles.manifest import GOLDEN, MANIFEST, WEIGHTS
from dragoman.service.catalog import catalog as catalog_module
from dragoman.service.catalog.catalog import NoRouteError
from dragoman.service.engine.job import FinishReason, Job
from tests.bundles.fakes import FakeEngines, open_catalog, tokenizer, write_bundle


@pytest.fixture
def engines() -> FakeEngines:
    return FakeEngines()


def rewrite_golden(path: Path, change: Callable[[dict[str, list[float]]], None]) -> None:
    """Change a golden sentence, and the manifest's hash with it."""
    from dragoman.service.bundles.manifest import record_file

    golden = json.loads((path / GOLDEN).read_text())
    change(golden)
    (path / GOLDEN).write_text(json.dumps(golden) + "\n")
    manifest = json.loads((path / MANIFEST).read_text())
    record = record_file(path / GOLDEN)
    manifest["files"][GOLDEN] = {"sha256": record.sha256, "bytes": record.bytes}
    (path / MANIFEST).write_text(json.dumps(manifest))


def test_a_bundle_serves_its_pairs_after_its_golden_check(tmp_path: Path) -> None:
    """The plain path: a directory of bundles becomes translations."""
    write_bundle(tmp_path / "pt-en")
    catalog = open_catalog(tmp_path)
    assert catalog.reload().loaded == ("pt-en 1",)
    assert catalog.routes() == [("pt", "en", None)]
    assert [bundle.name for bundle in catalog.bundles()] == ["pt-en"]
    catalog.close()


def test_a_bundle_that_translates_its_golden_sentences_otherwise_never_serves(
    tmp_path: Path, engines: FakeEngines
) -> None:
    """A broken export must be noticed before a user notices it."""
    write_bundle(tmp_path / "pt-en", kind="reverse", golden_kind="copy")
    catalog = open_catalog(tmp_path, engines=engines)
    report = catalog.reload()
    assert report.loaded == ()
    assert "golden sentence 1" in report.failed[0]
    assert catalog.routes() == []
    assert len(report.failed) == 1
    assert engines.stopped == ["pt-en 1"]  # nothing of it stays


def test_scores_that_differ_are_refused_and_those_within_tolerance_are_not(tmp_path: Path) -> None:
    """Tokens can agree by luck; scores show another model. CPU types differ by less than 1e-3."""

    def shift(amount: float) -> Callable[[dict[str, list[float]]], None]:
        return lambda golden: golden.update(log_probs=[value + amount for value in golden["log_probs"]])

    write_bundle(tmp_path / "near" / "pt-en")
    rewrite_golden(tmp_path / "near" / "pt-en", shift(5e-4))
    write_bundle(tmp_path / "far" / "pt-en")
    rewrite_golden(tmp_path / "far" / "pt-en", shift(2e-3))
    near, far = open_catalog(tmp_path / "near"), open_catalog(tmp_path / "far")
    assert near.reload().loaded == ("pt-en 1",)
    assert "golden sentence 1 a log-probability that differs by 0.0020" in far.reload().failed[0]
    near.close()


def test_a_tokenizer_that_reads_a_golden_sentence_otherwise_is_refused(tmp_path: Path) -> None:
    """Right weights behind a wrong vocabulary translate nonsense fluently."""
    write_bundle(tmp_path / "pt-en")
    rewrite_golden(tmp_path / "pt-en", lambda golden: golden.update(text="Outra frase."))
    assert "tokenizer" in open_catalog(tmp_path).reload().failed[0]


def test_a_bundle_without_golden_sentences_is_refused(tmp_path: Path) -> None:
    """Unproven is not proven."""
    write_bundle(tmp_path / "pt-en")
    rewrite_golden(tmp_path / "pt-en", lambda golden: golden.clear())
    (tmp_path / "pt-en" / GOLDEN).write_text("")
    write_bundle(tmp_path / "other")  # a good one beside it still serves
    catalog = open_catalog(tmp_path)
    report = catalog.reload()
    assert report.loaded == ("other 1",)
    assert len(report.failed) == 1
    catalog.close()


def test_a_new_version_replaces_the_old_one(tmp_path: Path, engines: FakeEngines) -> None:
    """Hot reload: the next request sees the new bundle, and the old engine ends."""
    write_bundle(tmp_path / "pt-en")
    catalog = open_catalog(tmp_path, engines=engines)
    catalog.reload()
    write_bundle(tmp_path / "pt-en", kind="reverse", version="2")
    assert catalog.changed()
    assert catalog.reload().loaded == ("pt-en 2",)
    assert not catalog.changed()
    assert [bundle.version for bundle in catalog.bundles()] == ["2"]
    catalog.close()
    assert sorted(engines.stopped) == ["pt-en 1", "pt-en 2"]


def test_the_old_version_serves_on_when_the_new_one_fails(tmp_path: Path) -> None:
    """A bad roll-out must not be an outage."""
    write_bundle(tmp_path / "pt-en")
    catalog = open_catalog(tmp_path)
    catalog.reload()
    write_bundle(tmp_path / "pt-en", kind="reverse", golden_kind="copy", version="2")
    assert len(catalog.reload().failed) == 1
    assert [bundle.version for bundle in catalog.bundles()] == ["1"]
    write_bundle(tmp_path / "pt-en", kind="reverse", version="3")
    assert catalog.reload().loaded == ("pt-en 3",)
    catalog.close()


def test_a_half_copied_bundle_leaves_the_old_one_serving(tmp_path: Path) -> None:
    """Files arrive one after another; the manifest's hashes tell when all are there."""
    write_bundle(tmp_path / "pt-en")
    catalog = open_catalog(tmp_path)
    catalog.reload()
    (tmp_path / "pt-en" / WEIGHTS).write_text("reverse")
    assert catalog.changed()
    assert "SHA-256" in catalog.reload().failed[0] or "bytes" in catalog.reload().failed[0]
    (tmp_path / "pt-en" / MANIFEST).unlink()
    assert len(catalog.reload().failed) == 1
    assert catalog.routes() == [("pt", "en", None)]
    catalog.close()


def test_a_bundle_is_copied_under_a_name_with_a_dot_and_renamed(tmp_path: Path) -> None:
    """What is only half there would be refused, and counted, and somebody would get an alert for it."""
    write_bundle(tmp_path / "pt-en")
    write_bundle(tmp_path / ".pt-en-2", version="2", name="pt-en")
    (tmp_path / ".pt-en-2" / WEIGHTS).unlink()
    catalog = open_catalog(tmp_path)
    assert catalog.reload().failed == ()
    write_bundle(tmp_path / ".pt-en-2", version="2", name="pt-en")
    (tmp_path / ".pt-en-2").rename(tmp_path / "pt-en-2")
    assert catalog.reload().loaded == ("pt-en 2",)
    (tmp_path / "pt-en").rename(tmp_path / ".pt-en")
    assert catalog.reload().unloaded == ("pt-en 1",)
    assert [bundle.version for bundle in catalog.bundles()] == ["2"]
    catalog.close()


def test_an_old_engine_finishes_what_a_lease_has_begun(tmp_path: Path, engines: FakeEngines) -> None:
    """A request that began before the reload is answered by the bundle it began with."""
    write_bundle(tmp_path / "pt-en")
    catalog = open_catalog(tmp_path, engines=engines)
    catalog.reload()
    source_ids = (*tokenizer().encode(["O gato dorme."]), 3)
    with catalog.lease("pt", "en") as (hop,):
        write_bundle(tmp_path / "pt-en", kind="reverse", version="2")
        catalog.reload()
        assert engines.stopped == []
        result = hop.served.engine.submit(Job(source_ids)).result(10)
        assert (result.finish_reason, result.hypotheses[0].ids) == (FinishReason.EOS, source_ids[:-1])
    catalog.close()
    assert sorted(engines.stopped) == ["pt-en 1", "pt-en 2"]


def test_touching_files_without_changing_them_reloads_nothing(tmp_path: Path, engines: FakeEngines) -> None:
    """A volume that is mounted again has new times and the same bundle."""
    write_bundle(tmp_path / "pt-en")
    catalog = open_catalog(tmp_path, engines=engines)
    catalog.reload()
    write_bundle(tmp_path / "pt-en")
    assert not catalog.reload()
    assert engines.stopped == []
    catalog.close()


def test_equal_names_with_other_files_are_another_bundle(tmp_path: Path) -> None:
    """Whoever exports again without a new version must not get the old one's cached answers."""
    write_bundle(tmp_path / "pt-en")
    catalog = open_catalog(tmp_path)
    catalog.reload()
    before = catalog.served()[0].identity
    write_bundle(tmp_path / "pt-en", kind="reverse")
    catalog.reload()
    assert catalog.served()[0].identity != before
    catalog.close()


def test_a_bundle_that_is_gone_is_unloaded(tmp_path: Path, engines: FakeEngines) -> None:
    """Removing a directory is how a pair is taken out of service."""
    write_bundle(tmp_path / "pt-en")
    write_bundle(tmp_path / "en-pt", pairs=[("en", "pt")])
    catalog = open_catalog(tmp_path, engines=engines)
    catalog.reload()
    shutil.rmtree(tmp_path / "pt-en")
    assert catalog.reload().unloaded == ("pt-en 1",)
    assert catalog.routes() == [("en", "pt", None)]
    catalog.close()


def test_a_root_that_is_away_takes_no_bundle_with_it(tmp_path: Path) -> None:
    """A network volume that hiccups is no order to stop serving."""
    root = tmp_path / "bundles"
    write_bundle(root / "pt-en")
    catalog = open_catalog(root)
    catalog.reload()
    root.rename(tmp_path / "elsewhere")
    assert catalog.reload().unloaded == ()
    assert catalog.routes() == [("pt", "en", None)]
    catalog.close()


def test_a_root_that_cannot_be_listed_takes_no_bundle_with_it_and_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other roots are looked at all the same."""
    sick, well = tmp_path / "sick", tmp_path / "well"
    write_bundle(sick / "pt-en")
    well.mkdir()
    catalog = open_catalog(sick, well)
    catalog.reload()
    write_bundle(well / "en-pt", pairs=(("en", "pt"),))
    list_directories = catalog_module.folders_in

    def fail(root: Path) -> list[Path]:
        if root == sick:
            raise OSError("Stale file handle")
        return list_directories(root)

    monkeypatch.setattr(catalog_module, "folders_in", fail)
    report = catalog.reload()
    assert (report.loaded, report.unloaded) == (("en-pt 1",), ())
    assert report.failed == ()
    assert "Stale file handle" in report.unlisted[0]
    assert len(catalog.routes()) == 2
    catalog.close()


def test_a_disk_that_fails_while_a_bundle_is_replaced_leaves_the_new_one_serving(
    tmp_path: Path, engines: FakeEngines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once it has proved itself nothing is read any more: else two engines would run, and neither be known."""
    write_bundle(tmp_path / "pt-en")
    catalog = open_catalog(tmp_path, engines=engines)
    catalog.reload()
    write_bundle(tmp_path / "pt-en", version="2")
    lists = iter([[tmp_path / "pt-en"]])
    monkeypatch.setattr(catalog_module, "folders_in", lambda root: next(lists))  # once, and then it fails
    assert catalog.reload().loaded == ("pt-en 2",)
    assert [bundle.version for bundle in catalog.bundles()] == ["2"]
    catalog.close()
    assert engines.stopped.count("pt-en 1") == 1


def test_a_directory_that_cannot_be_searched_is_told_and_hinders_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`lost+found` on a volume of one's own kept a server from starting."""
    write_bundle(tmp_path / "pt-en")
    locked = tmp_path / "lost+found"
    locked.mkdir()
    is_file = Path.is_file

    def refuse(path: Path) -> bool:
        if path.parent == locked:
            raise PermissionError(13, "Permission denied")
        return is_file(path)

    monkeypatch.setattr(Path, "is_file", refuse)
    catalog = open_catalog(tmp_path)
    report = catalog.reload()
    assert report.loaded == ("pt-en 1",)
    assert "lost+found" in report.failed[0]
    catalog.close()


def test_an_earlier_root_wins_a_pair(tmp_path: Path) -> None:
    """An operator's own bundle comes before one that came with the program."""
    write_bundle(tmp_path / "own" / "mine")
    write_bundle(tmp_path / "embedded" / "theirs", kind="reverse")
    catalog = open_catalog(tmp_path / "own", tmp_path / "embedded")
    catalog.reload()
    with catalog.lease("pt", "en") as (hop,):
        assert hop.served.bundle.name == "mine"
    catalog.close()


def test_of_two_bundles_for_one_pair_the_newer_version_serves(tmp_path: Path) -> None:
    """Whatever the folders are called and whichever was loaded first; the report names the other one, once."""
    write_bundle(tmp_path / "a", name="pt-en", version="1.9")
    catalog = open_catalog(tmp_path)
    assert catalog.reload().shadowed == ()
    write_bundle(tmp_path / "b", name="pt-en", version="1.10")
    report = catalog.reload()
    assert report.shadowed == ("pt-en 1.9 does not serve pt to en, because pt-en 1.10 is newer",)
    assert [bundle.version for bundle in catalog.bundles()] == ["1.10"]
    assert [(shadow.bundle.version, shadow.by.version) for shadow in catalog.shadows()] == [("1.9", "1.10")]
    assert catalog.reload().shadowed == ()
    catalog.close()


def test_the_older_version_serves_when_the_newer_one_is_gone(tmp_path: Path) -> None:
    """It was loaded all the time, so nobody waits for it."""
    write_bundle(tmp_path / "new", name="pt-en", version="2")
    write_bundle(tmp_path / "old", name="pt-en", version="1")
    catalog = open_catalog(tmp_path)
    catalog.reload()
    shutil.rmtree(tmp_path / "new")
    assert catalog.reload().unloaded == ("pt-en 2",)
    assert [bundle.version for bundle in catalog.bundles()] == ["1"]
    assert catalog.shadows() == []
    catalog.close()


def test_a_newer_version_that_fails_shadows_nothing(tmp_path: Path) -> None:
    """Only a bundle that passed its golden check takes a pair from another."""
    write_bundle(tmp_path / "old", name="pt-en", version="1")
    write_bundle(tmp_path / "new", kind="reverse", golden_kind="copy", name="pt-en", version="2")
    catalog = open_catalog(tmp_path)
    report = catalog.reload()
    assert (report.loaded, len(report.failed), report.shadowed) == (("pt-en 1",), 1, ())
    catalog.close()


def test_only_the_pairs_that_both_serve_are_shadowed(tmp_path: Path) -> None:
    """A newer bundle takes its own pairs, and leaves the others where they are."""
    write_bundle(tmp_path / "both", pairs=[("pt", "en"), ("en", "pt")], version="1")
    write_bundle(tmp_path / "one", pairs=[("pt", "en")], version="2")
    catalog = open_catalog(tmp_path)
    assert catalog.reload().shadowed == ("both 1 does not serve pt to en, because one 2 is newer",)
    for codes, name in ((("pt", "en"), "one"), (("en", "pt"), "both")):
        with catalog.lease(*codes) as (hop,):
            assert hop.served.bundle.name == name
    catalog.close()


@pytest.mark.parametrize("versions", [("1", "1"), ("989b84a01d67", "aaa62cdaf26a")])
def test_where_no_version_is_newer_the_folder_that_sorts_first_serves(
    tmp_path: Path, versions: tuple[str, str]
) -> None:
    """The exporter's own versions are made of the content and have no order; any rule will do if it is told."""
    for folder, version in zip(("a", "b"), versions, strict=True):
        write_bundle(tmp_path / folder, version=version)
    catalog = open_catalog(tmp_path)
    told = f"b {versions[1]} does not serve pt to en, because a {versions[0]} was found first: neither version is newer"
    assert catalog.reload().shadowed == (told,)
    catalog.close()


def test_a_root_may_be_a_bundle_itself(tmp_path: Path) -> None:
    """`--bundles path/to/pt-en` is what people try first."""
    write_bundle(tmp_path / "pt-en")
    catalog = open_catalog(tmp_path / "pt-en")
    assert catalog.reload().loaded == ("pt-en 1",)
    catalog.close()


def test_a_pair_without_a_bundle_goes_through_a_third_language(tmp_path: Path) -> None:
    """pt -> en -> es, when both halves are there; en is preferred, and a direct bundle always is."""
    write_bundle(tmp_path / "a", pairs=[("pt", "en"), ("pt", "de")])
    write_bundle(tmp_path / "b", pairs=[("en", "es"), ("de", "es")])
    catalog = open_catalog(tmp_path)
    catalog.reload()
    assert ("pt", "es", "en") in catalog.routes()
    with catalog.lease("pt", "es") as hops:
        assert [(hop.pair.source, hop.pair.target) for hop in hops] == [("pt", "en"), ("en", "es")]
    write_bundle(tmp_path / "c", pairs=[("pt", "es")])
    catalog.reload()
    assert ("pt", "es", None) in catalog.routes()
    with catalog.lease("pt", "es") as hops:
        assert len(hops) == 1
    catalog.close()


def test_pivoting_can_be_switched_off(tmp_path: Path) -> None:
    """Two translations in a row are worse than one; some want none."""
    write_bundle(tmp_path / "a", pairs=[("pt", "en")])
    write_bundle(tmp_path / "b", pairs=[("en", "es")])
    catalog = open_catalog(tmp_path, pivot=False)
    catalog.reload()
    assert catalog.routes() == [("en", "es", None), ("pt", "en", None)]
    with pytest.raises(NoRouteError), catalog.lease("pt", "es"):
        pass
    catalog.close()


def test_a_runner_that_cannot_start_is_a_failed_load(tmp_path: Path) -> None:
    """The runtime fails in its own ways on a bad graph; the server lives."""

    class Broken(FakeEngines):
        def __call__(self, bundle: object) -> object:  # type: ignore[override]
            raise RuntimeError("no such operator")

    write_bundle(tmp_path / "pt-en")
    catalog = open_catalog(tmp_path, engines=Broken())
    assert catalog.reload().failed == (f"bundle {tmp_path / 'pt-en'} could not be loaded: no such operator",)
