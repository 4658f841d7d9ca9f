"""Settings: read once, checked once, and clear about what is wrong."""

from pathlib import Path

import pytest

from dragoman.service.api.edge_limits import EdgeLimits
from dragoman.service.process.cgroup import available_cpus, cpu_quota, throttled_seconds
from dragoman.service.settings import REMOVED, SettingsError, describe, load_settings
from dragoman.service.translation.contract import TranslationLimits


def test_the_environment_sets_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container is configured by its environment alone."""
    monkeypatch.setenv("DRAGOMAN_MAX_ROWS", "16")
    monkeypatch.setenv("DRAGOMAN_CORS_ORIGINS", "https://a.example, https://b.example")
    monkeypatch.setenv("DRAGOMAN_KEYS_FILE", "")
    settings = load_settings()
    assert settings.max_rows == 16
    assert settings.cors_origins == ("https://a.example", "https://b.example")
    assert settings.keys_file is None


def test_the_command_line_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    """What somebody types is meant."""
    monkeypatch.setenv("DRAGOMAN_PORT", "9000")
    assert load_settings(port=9001, host=None).port == 9001


def test_a_misspelt_variable_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit that is silently ignored costs more than a server that does not start."""
    monkeypatch.setenv("DRAGOMAN_MAX_ROW", "16")
    with pytest.raises(SettingsError, match="did you mean DRAGOMAN_MAX_ROWS"):
        load_settings()


def test_a_setting_of_an_earlier_version_is_named_with_what_holds_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that ignored it would not do what its operator expects."""
    monkeypatch.setenv("DRAGOMAN_REQUIRE_KEY", "false")
    with pytest.raises(SettingsError, match="DRAGOMAN_REQUIRE_KEY is no longer a setting, unset it: every caller"):
        load_settings()


def test_no_setting_is_both_there_and_removed() -> None:
    """And what a message tells people to set instead is a setting."""
    variables = {row.variable for row in describe()}
    assert not variables & set(REMOVED)
    named = {word.strip(",.") for sentence in REMOVED.values() for word in sentence.split()}
    assert {word for word in named if word.startswith("DRAGOMAN_")} <= variables


def test_the_limits_that_are_told_are_those_that_hold() -> None:
    """Somebody had set them; the message says which value is used now."""
    assert f"{EdgeLimits().body_timeout_seconds:.0f} s" in REMOVED["DRAGOMAN_BODY_TIMEOUT_SECONDS"]
    assert f"{EdgeLimits().header_timeout_seconds:.0f} s" in REMOVED["DRAGOMAN_HEADER_TIMEOUT_SECONDS"]
    assert f"{EdgeLimits().max_header_bytes} bytes" in REMOVED["DRAGOMAN_MAX_HEADER_BYTES"]
    assert f"{EdgeLimits().max_live_streams} watchers" in REMOVED["DRAGOMAN_MAX_LIVE_STREAMS"]
    assert f"{TranslationLimits().max_glossary_terms} terms" in REMOVED["DRAGOMAN_MAX_GLOSSARY_TERMS"]


def test_a_setting_that_is_misspelt_in_code_is_refused() -> None:
    """The environment is not the only place to slip."""
    with pytest.raises(SettingsError, match="MAX_ROW: "):
        load_settings(max_row=16)


def test_kubernetes_service_links_are_not_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Service named dragoman sets DRAGOMAN_PORT to a URL in every pod of its namespace."""
    monkeypatch.setenv("DRAGOMAN_PORT", "tcp://10.0.0.7:80")
    monkeypatch.setenv("DRAGOMAN_SERVICE_HOST", "10.0.0.7")
    monkeypatch.setenv("DRAGOMAN_PORT_80_TCP", "tcp://10.0.0.7:80")
    assert load_settings().port == 8000


def test_all_problems_are_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """One start, one list of what to mend."""
    monkeypatch.setenv("DRAGOMAN_PORT", "99999")
    monkeypatch.setenv("DRAGOMAN_LOG_LEVEL", "loud")
    with pytest.raises(SettingsError, match=r"DRAGOMAN_PORT: .*; DRAGOMAN_LOG_LEVEL: "):
        load_settings()


def test_a_directory_that_is_not_there_is_refused() -> None:
    """Serving the embedded bundles instead would be a surprise."""
    with pytest.raises(SettingsError, match="no directory /nowhere"):
        load_settings(bundles=Path("/nowhere"))


def test_every_setting_says_what_it_is() -> None:
    """The README's table is made of these."""
    assert all(row.description for row in describe())


@pytest.mark.parametrize(
    ("files", "quota", "throttled"),
    [
        ({"cpu.max": "150000 100000", "cpu.stat": "usage_usec 9\nthrottled_usec 2500000"}, 1.5, 2.5),
        ({"cpu.max": "max 100000", "cpu.stat": "usage_usec 9\nthrottled_usec 0"}, None, 0.0),
        (
            {
                "cpu/cpu.cfs_quota_us": "50000",
                "cpu/cpu.cfs_period_us": "100000",
                "cpu/cpu.stat": "nr_periods 1\nthrottled_time 3000000000",
            },
            0.5,
            3.0,
        ),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None, None),
        ({"my.slice/cpu.max": "100000 100000"}, 1.0, None),
        ({}, None, None),
    ],
)
def test_both_versions_of_cgroup_are_read(
    tmp_path: Path, files: dict[str, str], quota: float | None, throttled: float | None
) -> None:
    """A thread pool sized by the machine's cores, in a container with a quota, is the commonest slowness there is."""
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    membership = tmp_path / "self"
    membership.write_text("0::/my.slice\n" if "my.slice/cpu.max" in files else "1:cpu,cpuacct:/\n0::/\n")
    assert cpu_quota(tmp_path, membership) == quota
    assert throttled_seconds(tmp_path, membership) == throttled
    if quota is not None:
        assert available_cpus(tmp_path, membership) <= max(1, round(quota + 0.5))
