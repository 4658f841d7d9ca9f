"""The folders of the repository as one package: `service` is installed as `dragoman.service`, and so on.

The image is built from `service` alone, so folders that are not there are left out. Everything else is in
pyproject.toml.
"""

from pathlib import Path

from setuptools import find_namespace_packages, setup

FOLDERS = [folder for folder in ("service", "export", "model") if Path(folder).is_dir()]


def packages_in(folder: str) -> list[str]:
    """The folder and those inside it; setuptools wants every folder listed that could be imported, even one of data."""
    found = find_namespace_packages(folder, exclude=("*__pycache__*", "weights"))
    importable = [name for name in found if all(part.isidentifier() for part in name.split("."))]
    return [f"dragoman.{folder}", *(f"dragoman.{folder}.{name}" for name in importable)]


setup(
    packages=[package for folder in FOLDERS for package in packages_in(folder)],
    package_dir={f"dragoman.{folder}": folder for folder in FOLDERS},
)
