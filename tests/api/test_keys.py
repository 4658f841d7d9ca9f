"""API keys, rates and quotas."""

import json
import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest

from dragoman.service.api.keys import Key, KeyRing, KeysError, digest, new_key, read_keys, write_keys
from dragoman.service.api.limits import Gate, RateLimiter, Usage
from dragoman.service.errors import ClientLeft, Forbidden, QuotaExceeded, RateLimited, StrictRefusal
from tests.api.conftest import OpenClient
from tests.api.fakes import FakeTranslator
from tests.clock import Clock


class Calendar:
    def __init__(self) -> None:
        self.now = datetime(2026, 11, 30, 23, 0, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


def open_gate(path: Path | None, requests_per_minute: int = 0) -> tuple[Gate, Clock]:
    clock = Clock()
    gate = Gate(KeyRing(path), RateLimiter(clock), Usage(None), requests_per_minute)
    return gate, clock


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    path = tmp_path / "keys.json"
    write_keys(path, [Key("fast", digest("one")), Key("slow", digest("two"), requests_per_minute=2)])
    return path


def test_the_file_holds_no_key_and_is_its_owners(keys: Path) -> None:
    """Whoever reads a backup of it must not be able to use it."""
    assert b"one" not in keys.read_bytes()
    assert stat.S_IMODE(keys.stat().st_mode) == 0o600


def test_new_keys_are_long_and_differ() -> None:
    """One SHA-256 is enough only for a key that cannot be guessed."""
    made = {new_key() for _ in range(100)}
    assert len(made) == 100
    assert all(len(key) >= 43 for key in made)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{}",
        '{"keys": [{}]}',
        '{"keys": [{"name": "a b", "sha256": "' + "0" * 64 + '"}]}',
        '{"keys": [{"name": "a", "sha256": "zz"}]}',
        '{"keys": [{"name": "a", "sha256": "' + "0" * 64 + '", "requests_per_minute": -1}]}',
        '{"keys": [' + ",".join(['{"name": "a", "sha256": "' + "0" * 64 + '"}'] * 2) + "]}",
    ],
)
def test_a_broken_file_is_told_in_a_sentence(tmp_path: Path, content: str) -> None:
    """A server that starts without the keys it was given would let the wrong people in, or nobody."""
    path = tmp_path / "keys.json"
    path.write_text(content)
    with pytest.raises(KeysError, match="keys file"):
        read_keys(path)


def test_a_file_of_another_kind_is_answered_with_what_makes_one(tmp_path: Path) -> None:
    """Nobody writes hashes by hand, so the file's format is nowhere to be read about."""
    path = tmp_path / "notes.txt"
    path.write_text("my keys")
    with pytest.raises(KeysError, match="use one that `dragoman keys add NAME --file FILE` wrote"):
        read_keys(path)


def test_a_broken_file_leaves_the_keys_as_they_were(keys: Path) -> None:
    """A slip of the editor must not lock everybody out."""
    ring = KeyRing(keys)
    keys.write_text("{")
    ring.reload()
    assert ring.find("one") is not None


def test_removed_keys_are_forgotten_on_reload(keys: Path) -> None:
    """Taking a key away must not need a restart."""
    ring = KeyRing(keys)
    write_keys(keys, [])
    ring.reload()
    assert ring.find("one") is None


def test_a_key_decides_who_may_ask(keys: Path) -> None:
    """No key and a wrong key are both refused where keys are needed."""
    gate, _ = open_gate(keys)
    assert gate.admit("one", "1.2.3.4") == Key("fast", digest("one"))
    for key in (None, "", "wrong", "\ud800"):
        with pytest.raises(Forbidden):
            gate.admit(key, "1.2.3.4")


def test_without_a_file_any_key_is_ignored() -> None:
    """DeepL's client cannot be made without some key."""
    gate, _ = open_gate(None)
    assert gate.admit("whatever", "1.2.3.4") is None


def test_a_rate_is_kept_and_recovers(keys: Path) -> None:
    """A minute's worth at once, then at the rate, and the caller is told when."""
    gate, clock = open_gate(keys)
    for _ in range(2):
        gate.admit("two", "1.2.3.4")
    with pytest.raises(RateLimited) as refusal:
        gate.admit("two", "1.2.3.4")
    assert refusal.value.retry_after_seconds == pytest.approx(30)
    gate.admit("one", "1.2.3.4")  # another key has its own
    clock.now += 30
    gate.admit("two", "1.2.3.4")


def test_callers_without_a_key_are_told_apart_by_address() -> None:
    """One eager address must not use up the others' share."""
    gate, _ = open_gate(None, requests_per_minute=1)
    gate.admit(None, "1.2.3.4")
    gate.admit(None, "5.6.7.8")
    with pytest.raises(RateLimited):
        gate.admit(None, "1.2.3.4")


def test_a_rate_of_zero_admits_nobody(keys: Path) -> None:
    """A key can be switched off without being removed."""
    write_keys(keys, [Key("off", digest("three"), requests_per_minute=0)])
    gate, _ = open_gate(keys)
    with pytest.raises(RateLimited):
        gate.admit("three", "1.2.3.4")


def test_characters_are_charged_before_and_given_back_on_failure() -> None:
    """Two requests must not share the last characters, and a refusal costs nothing."""
    gate, _ = open_gate(None)
    key = Key("small", "", characters_per_month=10)
    with gate.charge(key, 6), pytest.raises(QuotaExceeded), gate.charge(key, 6):
        pass
    assert gate.usage.used("small") == 6
    with pytest.raises(RuntimeError), gate.charge(key, 4):
        raise RuntimeError
    assert gate.usage.used("small") == 6
    with pytest.raises(ClientLeft), gate.charge(key, 4):
        raise ClientLeft  # the work was done, or begun
    assert gate.usage.used("small") == 10


async def test_a_stream_that_fails_after_its_first_words_has_its_price(
    open_client: OpenClient, tmp_path: Path, translator: FakeTranslator
) -> None:
    """Else a text whose end is refused would be translated for nothing, as often as one likes."""
    path, calls = tmp_path / "keys.json", 0
    write_keys(path, [Key("small", digest("k"), characters_per_month=100)])

    async def fail_from_the_second_time() -> None:  # the first request after its first letter, the other one before it
        nonlocal calls
        calls += 1
        if calls > 1:
            raise StrictRefusal("Something was lost.")

    translator.before = fail_from_the_second_time
    headers, usage = {"Authorization": "Bearer k"}, []
    async with open_client(keys_file=path) as client:
        for _ in range(2):
            await client.post("/v1/translate/stream", json={"text": "12345", "target": "en"}, headers=headers)
            usage.append((await client.get("/v2/usage", headers=headers)).json()["character_count"])
    assert usage == [5, 5]


def test_used_characters_survive_a_restart(tmp_path: Path) -> None:
    """A quota that forgets on every deployment is none."""
    usage = Usage(tmp_path)
    usage.add("small", 7)
    usage.save()
    assert Usage(tmp_path).used("small") == 7


def test_a_broken_state_file_counts_from_zero(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A server that cannot start because of a counter helps nobody; but it says so."""
    (tmp_path / "usage.json").write_text("[")
    assert Usage(tmp_path).used("small") == 0
    assert "could not be read" in caplog.text


def test_a_new_month_starts_from_zero(tmp_path: Path) -> None:
    """Quotas are per calendar month, and the refusal says when the next one starts."""
    today = Calendar()
    usage = Usage(tmp_path, today)
    usage.add("small", 7)
    usage.save()
    assert usage.seconds_to_next_month() == 3600
    today.now = datetime(2026, 12, 1, tzinfo=UTC)
    assert usage.used("small") == 0
    assert Usage(tmp_path, today).used("small") == 0
    assert usage.seconds_to_next_month() == 31 * 86400


async def test_the_native_api_takes_a_bearer_key(
    open_client: OpenClient, keys: Path, translator: FakeTranslator
) -> None:
    """And the key's name scopes the cache, so that nobody learns what others asked."""
    asked = {"text": "gato", "target": "en"}
    async with open_client(keys_file=keys) as client:
        refused = await client.post("/v1/translate", json=asked)
        answered = await client.post("/v1/translate", json=asked, headers={"Authorization": "Bearer one"})
    assert (refused.status_code, refused.json()["reason"]) == (403, "forbidden")
    assert answered.status_code == 200
    assert translator.orders[0][4] == "fast"


async def test_rates_and_quotas_are_429_in_the_native_api(open_client: OpenClient, tmp_path: Path) -> None:
    """With Retry-After, and without work."""
    path = tmp_path / "keys.json"
    write_keys(path, [Key("small", digest("k"), requests_per_minute=2, characters_per_month=5)])
    headers = {"Authorization": "Bearer k"}
    async with open_client(keys_file=path, state_dir=tmp_path) as client:
        quota = await client.post("/v1/translate", json={"text": "123456", "target": "en"}, headers=headers)
        fits = await client.post("/v1/translate", json={"text": "12345", "target": "en"}, headers=headers)
        rate = await client.post("/v1/translate", json={"text": "1", "target": "en"}, headers=headers)
    assert (quota.status_code, quota.json()["reason"]) == (429, "quota")
    assert fits.status_code == 200
    assert (rate.status_code, rate.json()["reason"]) == (429, "rate_limited")
    assert int(rate.headers["retry-after"]) > 0
    assert json.loads((tmp_path / "usage.json").read_text())["characters"] == {"small": 5}


async def test_probes_and_metrics_need_no_key(open_client: OpenClient, keys: Path) -> None:
    """Kubernetes and Prometheus have none."""
    async with open_client(keys_file=keys) as client:
        paths = ("/healthz", "/readyz", "/v2/health/live", "/v2/health/ready", "/metrics", "/health")
        assert [(await client.get(path)).status_code for path in paths] == [200] * 6


async def test_what_is_served_is_told_without_a_key(open_client: OpenClient, keys: Path) -> None:
    """The README says which endpoints are open; who closes one, or opens one, changes it there."""
    told = ("/v1/models", "/v1/languages", "/languages", "/frontend/settings", "/v2", "/v2/models/pt-en", "/docs")
    async with open_client(keys_file=keys) as client:
        assert [(await client.get(path)).status_code for path in told] == [200] * len(told)


async def test_what_translates_needs_a_key(open_client: OpenClient, keys: Path) -> None:
    """In every API; DeepL's wants one for its lists as well, as DeepL does."""
    native, libre = {"text": "gato", "target": "en"}, {"q": "gato", "source": "pt", "target": "en"}
    bodies = {
        **dict.fromkeys(("/v1/translate", "/v1/translate/stream", "/v1/explain"), native),
        **dict.fromkeys(("/translate", "/detect"), libre),
        "/v2/translate": {"text": "gato", "target_lang": "EN-US"},
    }
    async with open_client(keys_file=keys) as client:
        posted = [await client.post(path, json=body) for path, body in bodies.items()]
        lists = [await client.get(path) for path in ("/v2/languages", "/v2/usage")]
    assert [answer.status_code for answer in posted + lists] == [403] * 8
