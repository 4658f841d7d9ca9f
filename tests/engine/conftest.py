"""A clock that tests turn by hand."""

import pytest

from tests.clock import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock(now=0.0)
