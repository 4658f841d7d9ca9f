"""The command line."""

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dragoman.service.api.keys import KeyRing
from dragoman.service.commands.checkup import Finding, bundles, cpu, quota, runtime
from dragoman.service.commands.main import cli
from dragoman.service.settings import Settings
from tests.bundles.fakes import write_bundle

ROOT = Path(__file__).parents[2]
INTERRUPTED_IMPORT = """
import os, signal, sys

class Interruption:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1]:
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)  # the background of a shell ignores it, and hands that on
sys.meta_path.insert(0, Interruption())
from dragoman.service.commands.main import main
main()
"""


def run(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(cli, [str(argument) for argument in arguments])
    return result.exit_code, result.stdout, result.stderr


def test_a_key_is_printed_once_and_works(tmp_path: Path) -> None:
    """Standard output holds nothing but the key, so that a script can take it."""
    file = tmp_path / "keys.json"
    code, printed, told = run("keys", "add", "mobile", "--characters-per-month", 500, "--file", file)
    assert code == 0
    assert "not shown again" in told
    found = KeyRing(file).find(printed.strip())
    assert found is not None
    assert (found.name, found.characters_per_month) == ("mobile", 500)
    assert "mobile" in run("keys", "list", "--file", file)[1]
    assert run("keys", "remove", "mobile", "--file", file)[0] == 0
    assert KeyRing(file).find(printed.strip()) is None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["keys", "add", "a b"], "A name has"),
        (["keys", "add", "there"], "already"),
        (["keys", "remove", "nobody"], "no key named nobody"),
    ],
)
def test_mistakes_with_keys_are_told(tmp_path: Path, arguments: list[str], words: str) -> None:
    """And change nothing."""
    file = tmp_path / "keys.json"
    run("keys", "add", "there", "--file", file)
    before = file.read_bytes()
    code, _, told = run(*arguments, "--file", file)
    assert code == 2
    assert words in told
    assert file.read_bytes() == before


def test_keys_need_a_file() -> None:
    """There is no place for them unless somebody names one."""
    assert "DRAGOMAN_KEYS_FILE" in run("keys", "list")[2]


def test_the_version_is_told() -> None:
    """What every report of a fault begins with."""
    result = CliRunner().invoke(cli, ["--version"])
    assert (result.exit_code, result.output) == (0, f"dragoman {version('dragoman')}\n")


def test_a_setting_that_is_wrong_stops_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a sentence, not with a traceback."""
    monkeypatch.setenv("DRAGOMAN_MAX_ROWS", "none")
    code, _, told = run("serve")
    assert code == 2
    assert told.startswith("DRAGOMAN_MAX_ROWS: ")


@pytest.mark.parametrize("module", ["typer", "dragoman.service.commands.translate"])
def test_an_interruption_during_the_start_ends_it_quietly(module: str) -> None:
    """Who mistyped a command and presses Ctrl-C at once has done nothing that a traceback could explain."""
    command = [sys.executable, "-c", INTERRUPTED_IMPORT, module]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")


def test_models_of_an_empty_directory_are_none(tmp_path: Path) -> None:
    """An empty table would look like a fault."""
    assert "no bundles here" in run("models", "--bundles", tmp_path)[1]


def test_models_says_which_bundle_is_shadowed(tmp_path: Path) -> None:
    """And which one serves instead, without loading any."""
    write_bundle(tmp_path / "a", name="pt-en", version="1.9")
    write_bundle(tmp_path / "b", name="pt-en", version="1.10")
    told = "Shadowed: pt-en 1.9 does not serve pt to en, because pt-en 1.10 is newer."
    assert told in run("models", "--bundles", tmp_path)[1].splitlines()


def test_a_bundle_that_is_being_copied_is_nobodys_business(tmp_path: Path) -> None:
    """A dot in front keeps it from the server; the doctor must not call bad what a server will not even try."""
    write_bundle(tmp_path / "pt-en")
    write_bundle(tmp_path / ".en-pt", pairs=[("en", "pt")])
    assert [finding.what for finding in bundles(Settings(bundles=tmp_path))] == ["bundle pt-en"]
    listed = run("models", "--bundles", tmp_path)[1]
    assert "pt-en" in listed
    assert "en-pt" not in listed


def test_the_doctor_finds_what_int8_needs(tmp_path: Path) -> None:
    """Without vector instructions everything works, and nobody would know why it is slow."""
    info = tmp_path / "cpuinfo"
    info.write_text("model name\t: Some CPU\nflags\t\t: fpu avx2 avx_vnni\n")
    finding = cpu(info)
    assert finding.verdict == "good"
    assert "Some CPU" in finding.detail
    assert "avx2 avx_vnni" in finding.detail
    info.write_text("flags\t\t: fpu\n")
    assert cpu(info).verdict == "warning"


def test_the_doctor_compares_threads_with_the_quota(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that wait for each other in a small container are the commonest slowness."""
    assert quota(Settings(threads=1)).verdict == "good"
    assert "decode loops" in quota(Settings(threads=1)).detail


def test_the_doctor_finds_the_runtime() -> None:
    """Both packages at once overwrite each other's files."""
    assert [finding.verdict for finding in runtime()] == ["good"]
    assert isinstance(next(iter(runtime())), Finding)
