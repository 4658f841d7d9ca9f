"""Two hundred clients, bundles that change under them, and no answer that is lost, wrong or another's."""

import asyncio
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import httpx
import pytest

from tests.api.conftest import OpenServer
from tests.api.crowd import Question, Report, ask_alone, ask_in_a_crowd
from tests.api.rooms import Runners, write_bundles
from tests.bundles.fakes import sentences, write_bundle

NUM_CLIENTS = 200
FULL = pytest.param(10.0, marks=pytest.mark.full)  # a minute of it, on real bundles, is `make soak`


def questions() -> list[Question]:
    """Distinct texts of mixed lengths, in both directions, greedy and beam."""
    asked: list[Question] = []
    for number, (portuguese, english) in enumerate(sentences()[:60]):
        asked.append({"text": portuguese, "source": "pt", "target": "en"})
        asked.append({"text": f"{english}\n{portuguese}", "source": "en", "target": "pt"})
        if number % 4 == 0:
            asked.append({"text": english, "source": "en", "target": "pt", "beam_size": 3, "n_best": 2})
    return asked


def for_seconds(seconds: float) -> Callable[[Report], bool]:
    """However slow the machine, there are as many answers as clients."""
    end = time.monotonic() + seconds
    return lambda report: time.monotonic() < end or report.num_answers < NUM_CLIENTS


@pytest.mark.parametrize("seconds", [2.0, FULL])
@pytest.mark.parametrize("shares", [False, True], ids=["plain", "cached"])
async def test_each_of_200_clients_gets_its_own_answer(
    open_server: OpenServer, tmp_path: Path, shares: bool, seconds: float
) -> None:
    """Equal to the lonely answer, byte for byte; with and without cache and single flight."""
    asked = questions()
    build = partial(Runners().build, single_flight=shares)
    settings = {} if shares else {"cache_bytes": 0}
    with open_server(build, bundles=write_bundles(tmp_path), max_rows=64, **settings) as url:
        expected = await ask_alone(url, asked)
        report = await ask_in_a_crowd(url, asked, expected, NUM_CLIENTS, for_seconds(seconds))
    assert dict(report.statuses) == {200: report.num_answers}
    assert report.num_wrong == 0


async def test_bundles_change_under_load_without_an_error(open_server: OpenServer, tmp_path: Path) -> None:
    """Both versions are seen, every request is answered, and a version that fails its sentences never serves."""
    asked: list[Question] = [{"text": text, "source": "pt", "target": "en"} for text, _ in sentences()[:20]]
    seen: set[str] = set()
    done = asyncio.Event()

    async def write(version: str, golden_kind: str | None = None) -> None:
        arguments = (tmp_path / "pt-en", "copy", [("pt", "en")], version, True, 64, golden_kind)
        await asyncio.to_thread(write_bundle, *arguments)

    async def change(client: httpx.AsyncClient) -> None:
        try:
            await ask_for_versions(client, seen, lambda: seen == {"1"})
            await write("2")
            await ask_for_versions(client, seen, lambda: "2" in seen)
            await write("3", golden_kind="reverse")
            while 'dragoman_bundle_loads_total{outcome="failed"} 0.0' in (await client.get("/metrics")).text:
                pass
            await ask_for_versions(client, seen, lambda: True)
        finally:
            done.set()

    bundles = write_bundles(tmp_path, "copy")
    with open_server(Runners().build, bundles=bundles, watch=True) as url:
        expected = await ask_alone(url, asked)
        async with httpx.AsyncClient(base_url=url, verify=False, timeout=30) as client:
            report = await ask_in_a_crowd(url, asked, expected, 20, lambda report: not done.is_set(), change(client))
    assert dict(report.statuses) == {200: report.num_answers}
    assert report.num_wrong == 0  # both versions copy
    assert seen == {"1", "2"}


async def ask_for_versions(client: httpx.AsyncClient, seen: set[str], enough: Callable[[], bool]) -> None:
    """Translate until the versions that answered are enough."""
    async with asyncio.timeout(30):
        while True:
            response = await client.post("/v1/translate", json={"text": "Bom dia.", "source": "pt", "target": "en"})
            assert response.status_code == 200
            seen.add(response.json()["model"]["version"])
            if enough():
                return
