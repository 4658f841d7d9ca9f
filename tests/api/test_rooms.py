"""Through HTTP and all the rooms behind it, over runners that copy, reverse or never end."""

import json
import threading
from pathlib import Path

import httpx
import pytest

from tests.api.conftest import OpenServer, open_http
from tests.api.rooms import Runners, write_bundles
from tests.api.test_native import events_of
from tests.api.wire import Wire
from tests.bundles.fakes import write_bundle

TEXT = "A porta do jardim ficou aberta.\n\n  - Quem foi?\tNinguém sabe."
ASKED = {"text": TEXT, "source": "pt", "target": "en"}


class Brake:
    """Lets a runner make one step for each permit; without any it stands still in mid-decode."""

    def __init__(self) -> None:
        self._permits = threading.Semaphore(0)
        self.released = False
        self.waiting = threading.Event()

    def __call__(self, step: int) -> None:
        if not self.released:
            self.waiting.set()
            self._permits.acquire()

    def allow(self, steps: int) -> None:
        """Let the runner make some steps, and wait until it stands at the next."""
        for _ in range(steps):
            assert self.waiting.wait(10)
            self.waiting.clear()
            self._permits.release()
        assert self.waiting.wait(10)

    def release(self) -> None:
        self.released = True
        self._permits.release(10)


@pytest.fixture
def runners() -> Runners:
    return Runners()


def sample(url: str, line: str) -> float:
    text = httpx.get(f"{url}/metrics").text
    return next(float(each.rpartition(" ")[2]) for each in text.splitlines() if each.startswith(line))


def test_the_three_apis_give_the_same_translation(open_server: OpenServer, runners: Runners, tmp_path: Path) -> None:
    """And what stands between segments comes back exactly."""
    with open_server(runners.build, bundles=write_bundles(tmp_path, "copy")) as url:
        native = httpx.post(f"{url}/v1/translate", json=ASKED).json()
        deepl = httpx.post(f"{url}/v2/translate", json={"text": [TEXT], "source_lang": "PT", "target_lang": "EN-US"})
        libre = httpx.post(f"{url}/translate", data={"q": TEXT, "source": "pt", "target": "en"})
    assert native["translations"][0]["text"] == TEXT
    assert deepl.json()["translations"][0]["text"] == TEXT
    assert libre.json()["translatedText"] == TEXT
    assert [segment["finish_reason"] for segment in native["translations"][0]["segments"]] == ["eos"] * 3


def test_a_stream_joins_to_the_same_text(open_server: OpenServer, runners: Runners, tmp_path: Path) -> None:
    """Whoever shows a translation as it grows ends with the one that others get."""
    with open_server(runners.build, bundles=write_bundles(tmp_path)) as url:
        whole = httpx.post(f"{url}/v1/translate", json=ASKED).json()
        events = list(events_of(httpx.post(f"{url}/v1/translate/stream", json=ASKED).text))
    joined = "".join(data["text"] for name, data in events if name == "token")
    assert joined == whole["translations"][0]["text"]
    assert events[-1][1]["translations"] == whole["translations"]


def test_a_pivot_is_used_and_told(open_server: OpenServer, runners: Runners, tmp_path: Path) -> None:
    """Two bundles in a row serve a pair that neither serves, and the answer says so."""
    write_bundle(tmp_path / "pt-en", "copy", [("pt", "en")])
    write_bundle(tmp_path / "en-fr", "copy", [("en", "fr")])
    asked = {"text": "Bom dia.", "source": "pt", "target": "fr"}
    with open_server(runners.build, bundles=tmp_path) as url:
        translation = httpx.post(f"{url}/v1/translate", json=asked).json()["translations"][0]
        pairs = httpx.get(f"{url}/v1/languages").json()["pairs"]
    assert (translation["text"], translation["pivot"]) == ("Bom dia.", "en")
    assert {"source": "pt", "target": "fr", "pivot": "en"} in pairs
    with open_server(runners.build, bundles=tmp_path, pivot=False) as url:
        assert httpx.post(f"{url}/v1/translate", json=asked).status_code == 404


def test_what_was_lost_is_told_and_strict_refuses_it(open_server: OpenServer, runners: Runners, tmp_path: Path) -> None:
    """A translation that repeats itself is stopped and says so; with `strict` it is not given at all."""
    asked = {"text": "Uma frase que se repete.", "source": "pt", "target": "en"}
    with open_server(runners.build, bundles=write_bundles(tmp_path)) as url:
        runners.behave("pt-en 1", "loop")
        told = httpx.post(f"{url}/v1/translate", json=asked).json()
        refused = httpx.post(f"{url}/v1/translate", json={**asked, "strict": True})
        foreign = {"text": ["Uma frase."], "source_lang": "PT", "target_lang": "EN"}
        deepl = httpx.post(f"{url}/v2/translate", json={**foreign, "strict": True})
    assert told["translations"][0]["segments"][0]["finish_reason"] in ("repetition", "length")
    assert (refused.status_code, refused.json()["reason"]) == (422, "strict")
    assert deepl.status_code == 400


@pytest.mark.parametrize(
    "text", ["", " \n\t ", "a\x00b\x00", "\u202eשלום\u202c", "x" * 50_000, "\u200b\ufeff", "👩‍🚀 {name} %s <b>x</b>"]
)
def test_odd_text_survives(open_server: OpenServer, runners: Runners, tmp_path: Path, text: str) -> None:
    """A model that copies must give back every character, whatever it is."""
    with open_server(runners.build, bundles=write_bundles(tmp_path, "copy")) as url:
        response = httpx.post(f"{url}/v1/translate", json={"text": text, "source": "pt", "target": "en"}, timeout=60)
    assert response.status_code == 200
    assert response.json()["translations"][0]["text"] == text


async def test_a_caller_who_leaves_frees_its_rows_within_two_steps(
    open_server: OpenServer, runners: Runners, tmp_path: Path
) -> None:
    """Rows are what a server sells; nobody is waiting for these any more."""
    brake = Brake()
    with open_server(runners.build, bundles=write_bundles(tmp_path)) as url:
        runners.behave("pt-en 1", "long")
        runners.before_step = brake
        runner = runners.of["pt-en 1"]
        async with Wire.open(url) as wire:
            await wire.post("/v1/translate", {"text": "Bom dia.", "source": "pt", "target": "en", "beam_size": 4})
            brake.allow(5)
            assert sample(url, 'dragoman_active_rows{pair="pt-en"}') == 4
        while sample(url, 'dragoman_requests_total{api="native",outcome="cancelled"}') == 0:
            pass
        before = runner.num_steps
        brake.release()
        while sample(url, 'dragoman_active_rows{pair="pt-en"}') > 0:
            pass
        assert runner.num_steps - before <= 2
        assert sample(url, 'dragoman_cancelled_total{pair="pt-en"}') == 1


async def test_a_full_queue_is_refused_with_a_time(open_server: OpenServer, runners: Runners, tmp_path: Path) -> None:
    """Better a refusal now than an answer after the caller has given up; and work that was accepted is done."""
    brake, bundles = Brake(), write_bundles(tmp_path)
    limits = {"max_rows": 1, "max_beam_size": 1, "max_queued_tokens": 20}
    with open_server(runners.build, bundles=bundles, **limits) as url:
        runners.before_step = brake
        async with Wire.open(url) as running, Wire.open(url) as waiting:
            await running.post("/v1/translate", {**ASKED, "text": "Uma frase."})
            assert brake.waiting.wait(10)
            await waiting.post("/v1/translate", {**ASKED, "text": "Outra frase, que tem de esperar."})
            while sample(url, 'dragoman_queued_tokens{pair="pt-en"}') == 0:
                pass
            async with open_http() as client:
                asked = {**ASKED, "text": "Mais uma, que já não cabe na fila."}
                refused = await client.post(f"{url}/v1/translate", json=asked)
            brake.release()
            assert (await running.answer()).status == 200
            assert (await waiting.answer()).status == 200
    assert (refused.status_code, refused.json()["reason"]) == (429, "queue_full")
    assert int(refused.headers["retry-after"]) >= 1


def test_a_deadline_gives_what_there_is_or_504(open_server: OpenServer, runners: Runners, tmp_path: Path) -> None:
    """A part of the text in time, marked as such; or a refusal, for who wants all or nothing."""
    released = threading.Event()
    asked = {"text": "Bom dia.", "source": "pt", "target": "en", "timeout_ms": 100}

    def crawl(step: int) -> None:
        released.wait(0.02)

    with open_server(runners.build, bundles=write_bundles(tmp_path)) as url:
        runners.behave("pt-en 1", "long")
        runners.before_step = crawl
        partial = httpx.post(f"{url}/v1/translate", json=asked)
        strict = httpx.post(f"{url}/v1/translate", json={**asked, "strict": True})
        released.set()
    segment = partial.json()["translations"][0]["segments"][0]
    assert (partial.status_code, segment["finish_reason"]) == (200, "deadline")
    assert segment["num_tokens"] > 0
    assert (strict.status_code, strict.json()["reason"]) == (504, "deadline")


def test_every_metric_has_real_values(open_server: OpenServer, runners: Runners, tmp_path: Path) -> None:
    """A metric that never moves is a promise that nobody kept."""
    with open_server(runners.build, bundles=write_bundles(tmp_path)) as url:
        for _ in range(2):
            httpx.post(f"{url}/v1/translate", json=ASKED)
        for line in (
            'dragoman_requests_total{api="native",outcome="ok"}',
            'dragoman_request_duration_seconds_count{api="native",pair="pt-en"}',
            'dragoman_queue_wait_seconds_count{pair="pt-en"}',
            'dragoman_first_token_seconds_count{pair="pt-en"}',
            'dragoman_encode_seconds_count{pair="pt-en"}',
            'dragoman_decode_step_seconds_count{pair="pt-en"}',
            'dragoman_batch_rows_count{pair="pt-en"}',
            'dragoman_source_tokens_total{pair="pt-en"}',
            'dragoman_target_tokens_total{pair="pt-en"}',
            'dragoman_segments_total{finish_reason="eos",pair="pt-en"}',
            'dragoman_cache_lookups_total{result="hit"}',
            'dragoman_cache_lookups_total{result="miss"}',
            'dragoman_bundle_loads_total{outcome="loaded"}',
            'dragoman_bundle_info{name="pt-en"',
            'dragoman_row_capacity{pair="pt-en"}',
            'dragoman_engine_busy_seconds_total{pair="pt-en"}',
            "dragoman_runtime_threads",
            "process_resident_memory_bytes",
        ):
            assert sample(url, line) > 0, line


def test_the_live_stream_shows_rows_and_no_text(open_server: OpenServer, runners: Runners, tmp_path: Path) -> None:
    """What a page needs to draw the batch."""
    with (
        open_server(runners.build, bundles=write_bundles(tmp_path)) as url,
        httpx.stream("GET", f"{url}/v1/live", params={"interval_ms": 50}) as response,
    ):
        line = next(line for line in response.iter_lines() if line.startswith("data: "))
    engine = json.loads(line.removeprefix("data: "))["engines"][0]
    assert engine["pair"] == "en-pt"
    assert engine["loops"] == [[]]
    assert engine["row_capacity"] > 0


def test_a_server_without_bundles_does_not_start(tmp_path: Path, open_server: OpenServer, runners: Runners) -> None:
    """It says why in the log, and exits, so that nobody waits for it."""
    with pytest.raises(AssertionError, match="did not start"), open_server(runners.build, bundles=tmp_path):
        pass
