"""Which version is newer."""

import pytest

from dragoman.service.catalog.versions import age_key


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("1", "2"),
        ("1.9", "1.10"),
        ("1.2", "1.2.1"),
        ("v1.2", "1.3"),
        ("2026.9.30", "2026.11.2"),
        ("1.2.0-rc.1", "1.2.0"),
        ("1.2.0-rc.9", "1.2.0-rc.10"),
        ("1.2.0-1", "1.2.0-alpha"),
        ("1.2.0-alpha", "1.2.0-alpha.1"),
        ("1.1", "1.2.0-rc.1"),
        ("989b84a01d67", "0.1"),
    ],
)
def test_numbers_are_compared_as_numbers(older: str, newer: str) -> None:
    """As text 1.10 would be older than 1.9, and the older bundle would serve."""
    assert age_key(older) < age_key(newer)


@pytest.mark.parametrize(
    ("one", "other"), [("1", "1.0"), ("v2", "2"), ("1.0+a", "1.0+b"), ("989b84a01d67", "aaa62cdaf26a"), ("new", "old")]
)
def test_versions_without_an_order_are_of_like_age(one: str, other: str) -> None:
    """Digits made of the content say nothing about time; another rule must decide between them."""
    assert age_key(one) == age_key(other)
