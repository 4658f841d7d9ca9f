"""With a bound on memory bundles load at their first use, once, and whoever waits is told how it went."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dragoman.service.bundles.manifest import Bundle
from dragoman.service.catalog.catalog import Catalog
from dragoman.service.catalog.loading import ClosedError, LoadFailedError
from dragoman.service.engine.loop import Engine
from dragoman.service.translation.tokenizer import load_tokenizer
from tests.bundles.fakes import FakeEngines, write_bundle

PAIRS = [("pt", "en"), ("es", "en"), ("fr", "en"), ("en", "de")]


class Engines(FakeEngines):
    """Fake engines that count how often each was opened, and fail while told so."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[str] = []
        self.fail = False

    def __call__(self, bundle: Bundle) -> Engine:
        self.opened.append(bundle.name)
        if self.fail:
            raise RuntimeError("no such operator")
        return super().__call__(bundle)


@pytest.fixture
def engines() -> Engines:
    return Engines()


@pytest.fixture
def open_bounded(tmp_path: Path, engines: Engines) -> Iterator[Callable[[int], Catalog]]:
    """A catalog of four bundles, with memory for some of them."""
    opened: list[Catalog] = []

    def open_catalog(fitting: int) -> Catalog:
        for source, target in PAIRS:
            write_bundle(tmp_path / f"{source}-{target}", pairs=[(source, target)])
        opened.append(Catalog([tmp_path], engines, load_tokenizer, max_bytes=fitting, cost=lambda bundle: 1))
        return opened[-1]

    yield open_catalog
    for catalog in opened:
        catalog.close(drain=False)


def test_a_bundle_is_listed_at_once_and_loaded_at_its_first_use(
    open_bounded: Callable[[int], Catalog], engines: Engines
) -> None:
    """Fifty bundles must not delay the start, nor take memory that nobody needs."""
    catalog = open_bounded(2)
    report = catalog.reload()
    assert (len(report.offered), report.loaded, engines.opened) == (4, (), [])
    assert ("pt", "de", "en") in catalog.routes()
    assert {status.state for status in catalog.statuses()} == {"loadable"}
    with catalog.lease("pt", "en") as (hop,):
        assert hop.served.bundle.name == "pt-en"
        assert catalog.memory() == (1, 1)
    assert [status.state for status in catalog.statuses() if status.bundle.name == "pt-en"] == ["loaded"]


def test_all_who_wait_for_a_bundle_share_one_load(open_bounded: Callable[[int], Catalog], engines: Engines) -> None:
    """Ten first requests are one load."""
    catalog = open_bounded(2)
    catalog.reload()
    promises = [catalog.lease_soon([("pt", "en")]) for _ in range(10)]
    leases = [promise.result(30) for promise in promises]
    assert engines.opened == ["pt-en"]
    for lease in leases:
        lease.end()


def test_every_pair_answers_where_only_one_bundle_fits(open_bounded: Callable[[int], Catalog]) -> None:
    """A pair through a third language needs two at a time, and gets them, however small the bound is."""
    catalog = open_bounded(1)
    catalog.reload()
    promises = [catalog.lease_soon([(source, target)]) for source, target, _ in catalog.routes() * 3]
    for promise in promises:
        promise.add_done_callback(lambda done: done.result().end())
    assert all(promise.result(60) for promise in promises)
    assert catalog.memory()[0] <= 2


def test_a_load_that_fails_is_told_to_all_who_waited_and_tried_again(
    open_bounded: Callable[[int], Catalog], engines: Engines
) -> None:
    """A disk that hiccups costs the requests of that moment only."""
    catalog = open_bounded(2)
    catalog.reload()
    engines.fail = True
    promises = [catalog.lease_soon([("pt", "en")]) for _ in range(3)]
    assert all(isinstance(promise.exception(30), LoadFailedError) for promise in promises)
    assert [status.state for status in catalog.statuses() if status.bundle.name == "pt-en"] == ["failed"]
    engines.fail = False
    with catalog.lease("pt", "en"):
        assert [status.state for status in catalog.statuses() if status.bundle.name == "pt-en"] == ["loaded"]


def test_a_newer_version_that_cannot_be_loaded_gives_its_pair_back(tmp_path: Path, engines: Engines) -> None:
    """It is only known at the first use; the requests after that one go to the bundle that works."""
    write_bundle(tmp_path / "old", name="pt-en", version="1")
    write_bundle(tmp_path / "new", kind="reverse", golden_kind="copy", name="pt-en", version="2")
    catalog = Catalog([tmp_path], engines, load_tokenizer, max_bytes=9, cost=lambda bundle: 1)
    catalog.reload()
    with pytest.raises(LoadFailedError, match="golden sentence 1"):
        catalog.lease("pt", "en")
    with catalog.lease("pt", "en") as (hop,):
        assert hop.served.bundle.version == "1"
    catalog.close()


def test_a_loaded_bundle_serves_until_its_replacement_is_proven(tmp_path: Path, engines: Engines) -> None:
    """A bad roll-out must not be an outage, also where the memory is full of others."""
    write_bundle(tmp_path / "pt-en")
    write_bundle(tmp_path / "es-en", pairs=[("es", "en")])
    catalog = Catalog([tmp_path], engines, load_tokenizer, max_bytes=1, cost=lambda bundle: 1)
    catalog.reload()
    catalog.lease("pt", "en").end()
    write_bundle(tmp_path / "pt-en", kind="reverse", golden_kind="copy", version="2")
    assert len(catalog.reload().failed) == 1
    promise = catalog.lease_soon([("es", "en")])  # wants the room, but the files of the old one are gone
    with catalog.lease("pt", "en") as (hop,):
        assert hop.served.bundle.version == "1"
    write_bundle(tmp_path / "pt-en", kind="reverse", version="3")
    assert catalog.reload().loaded == ("pt-en 3",)
    promise.result(30).end()
    with catalog.lease("pt", "en") as (hop,):
        assert hop.served.bundle.version == "3"
    catalog.close()


def test_a_bundle_that_is_taken_away_serves_no_more(open_bounded: Callable[[int], Catalog], tmp_path: Path) -> None:
    """Whether it was loaded or not."""
    catalog = open_bounded(2)
    catalog.reload()
    catalog.lease("es", "en").end()
    for name in ("pt-en", "es-en"):
        shutil.rmtree(tmp_path / name)
    assert sorted(catalog.reload().unloaded) == ["es-en 1", "pt-en 1"]
    assert [route for route in catalog.routes() if route[0] in ("pt", "es")] == []


def test_closing_tells_those_who_wait_and_a_reload_begins_anew(open_bounded: Callable[[int], Catalog]) -> None:
    """Nobody waits for ever for a server that stops; and an app may run a second time."""
    catalog = open_bounded(1)
    catalog.reload()
    held = catalog.lease("es", "en")  # in use, so that there is no room for another
    waiting = catalog.lease_soon([("fr", "en")])
    catalog.close(drain=False)
    assert isinstance(waiting.exception(30), ClosedError)
    held.end()
    catalog.reload()
    with catalog.lease("fr", "en") as (hop,):
        assert hop.served.bundle.name == "fr-en"


def test_who_gives_up_takes_nothing_with_them(open_bounded: Callable[[int], Catalog]) -> None:
    """A caller that leaves while a bundle is loaded must not keep it in use for ever."""
    catalog = open_bounded(1)
    catalog.reload()
    held = catalog.lease("es", "en")
    waiting = catalog.lease_soon([("fr", "en")])
    assert waiting.cancel()
    held.end()
    for source in ("pt", "fr", "es"):
        catalog.lease(source, "en").end()
