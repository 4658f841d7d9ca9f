"""A server of our own and a bench to pull on."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pulling.published import Published, serving
from tests.pulling.pulls import Bench


@pytest.fixture
def published() -> Iterator[Published]:
    with serving() as found:
        yield found


@pytest.fixture
def bench(published: Published, tmp_path: Path) -> Bench:
    return Bench(published, tmp_path)
