"""Which bundle a language code means, where its region is not there."""

import pytest

from dragoman.service.language_codes import closest


@pytest.mark.parametrize(
    ("asked", "codes", "given"),
    [
        ("PT-br", {"pt-BR", "pt-PT"}, "pt-BR"),
        ("pt-PT", {"pt-BR", "pt-PT"}, "pt-PT"),
        ("pt-PT", {"pt"}, "pt"),
        ("pt-PT", {"pt-BR"}, "pt-BR"),
        ("pt", {"pt-PT", "pt-BR"}, "pt-BR"),
        ("en-Latn-GB", {"en"}, "en"),
        ("zh-Hant", {"zh-Hans"}, None),
        ("zh-Hans-CN", {"zh-Hans", "zh-Hant"}, "zh-Hans"),
        ("de", {"pt"}, None),
    ],
)
def test_the_nearest_code_is_meant(asked: str, codes: set[str], given: str | None) -> None:
    """Another region is understood by its readers, and the answer names it; another script is not."""
    assert closest(asked, codes) == given
