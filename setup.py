"""The folders of the repository as one package: `service` is installed as `dragoman.service`, and so on.

An image is built from `service` alone, so what is not there is left out. Everything else is in pyproject.toml.
"""

from pathlib import Path

from setuptools import find_packages, setup

ROOMS = [room for room in ("service", "export", "model") if Path(room).is_dir()]

setup(
    packages=[f"dragoman.{name}" for room in ROOMS for name in (room, *(f"{room}.{p}" for p in find_packages(room)))],
    package_dir={f"dragoman.{room}": room for room in ROOMS},
)
