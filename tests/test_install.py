"""The wheel: one import name, `dragoman`, complete, and at peace with a project that has modules of the same names."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("service", "export", "model")
# What is installed besides Python files; the weights that `model/` keeps are for training in the repository.
DATA = ("service/embedded/", "service/playground/", "service/api/static/", "model/recipes/", "export/sentences")
MISSING = [name for name in ("pip", "setuptools") if find_spec(name) is None]

pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"building a wheel needs {', '.join(MISSING)}")


def pip(*arguments: object) -> None:
    """Without the network: a build must need nothing but what is here."""
    command = [sys.executable, "-m", "pip", *map(str, arguments), "--no-deps", "--no-index", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "absent from the `packages`" not in done.stderr


def build_wheel(work: Path, *folders: str) -> Path:
    """Build it from a copy, because setuptools leaves files where it builds."""
    source = work / "source"
    for folder in folders:
        shutil.copytree(ROOT / folder, source / folder, ignore=shutil.ignore_patterns("__pycache__", "weights"))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):  # as in the Dockerfile
        shutil.copy(ROOT / name, source / name)
    pip("wheel", "--no-build-isolation", "--wheel-dir", work / "wheels", source)
    (wheel,) = (work / "wheels").iterdir()
    return wheel


def names_in(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def wanted_files(*folders: str) -> set[str]:
    paths = [path.relative_to(ROOT).as_posix() for folder in folders for path in (ROOT / folder).rglob("*.py")]
    paths += [path.relative_to(ROOT).as_posix() for data in DATA for path in (ROOT / data).rglob("*") if path.is_file()]
    return {f"dragoman/{path}" for path in paths if path.split("/")[0] in folders}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"), *FOLDERS)


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("installed")
    pip("install", "--target", target, wheel)
    return target


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A working directory whose own modules have the names of our folders."""
    for name in FOLDERS:
        (tmp_path / f"{name}.py").write_text(f"NAME = 'my own {name}'\n")
    return tmp_path


def run(installed: Path, project: Path, *arguments: str) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DRAGOMAN_")}
    environment |= {"PYTHONPATH": str(installed), "COLUMNS": "200"}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=project, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_the_wheel_holds_everything_and_only_under_one_name(wheel: Path) -> None:
    """A top-level `service` in everybody's environment breaks whoever has one; a forgotten folder breaks us."""
    names = names_in(wheel)
    assert {name.split("/")[0] for name in names} == {"dragoman", f"{'-'.join(wheel.stem.split('-')[:2])}.dist-info"}
    assert {name for name in names if name.startswith("dragoman/")} == wanted_files(*FOLDERS)


def test_the_image_is_built_from_the_service_alone(tmp_path: Path) -> None:
    """The Dockerfile copies `service` only."""
    names = names_in(build_wheel(tmp_path, "service"))
    assert {name for name in names if name.startswith("dragoman/")} == wanted_files("service")


def test_commands_are_entered_by_the_installed_name(wheel: Path) -> None:
    """Each one leads to a function that is there."""
    with zipfile.ZipFile(wheel) as archive:
        (listed,) = [name for name in archive.namelist() if name.endswith(".dist-info/entry_points.txt")]
        lines = archive.read(listed).decode().splitlines()[1:]
        targets = [line.split("=")[1].strip() for line in lines if line]
        assert len(targets) == 5
        for module, function in (target.split(":") for target in targets):
            assert module.startswith("dragoman.")
            assert f"def {function}(" in archive.read(module.replace(".", "/") + ".py").decode()


def test_a_project_with_modules_of_the_same_names_keeps_its_own(installed: Path, project: Path) -> None:
    """A notebook's own `model.py` is imported, and so are we, in one process."""
    code = """
import json, service, model, export
import dragoman.service.app, dragoman.service.engine.runner, dragoman.model.filters, dragoman.export.card
from importlib.metadata import version
own = [service.NAME, export.NAME, model.NAME]
ours = [each.__file__ for each in (dragoman.service, dragoman.model, dragoman.export, dragoman.service.app)]
print(json.dumps([own, ours, version("dragoman")]))
"""
    own, ours, version = json.loads(run(installed, project, "-c", code))
    assert own == [f"my own {name}" for name in FOLDERS]
    assert all(Path(path).is_relative_to(installed) for path in ours)
    assert f'version = "{version}"' in (ROOT / "pyproject.toml").read_text()


def test_the_installed_command_runs_beside_them(installed: Path, project: Path) -> None:
    """And finds the embedded bundles where they were installed."""
    command = ("-m", "dragoman.service.commands.main")
    assert run(installed, project, *command, "--version").startswith("dragoman ")
    listed = run(installed, project, *command, "models")
    assert "pt-en" in listed
    assert "en-pt" in listed
