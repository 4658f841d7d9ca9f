"""DeepL's `ignore_tags`: elements end where they are closed, and their number is told by its own name."""

from collections.abc import Iterator

import httpx
import pytest

from tests.api.conftest import OpenServer
from tests.api.fakes import FakeTranslator


@pytest.fixture
def url(open_server: OpenServer) -> Iterator[str]:
    with open_server() as url:
        yield url


def ask(url: str, text: str) -> httpx.Response:
    body = {"text": [text], "target_lang": "EN", "tag_handling": "xml", "ignore_tags": ["x"]}
    return httpx.post(f"{url}/v2/translate", json=body, timeout=60)


@pytest.mark.parametrize(
    ("text", "ignored"),
    [
        ("<x>fora <x>dentro</x> fora</x> O gato", ["<x>fora <x>dentro</x> fora</x>"]),
        ("<x>um <x /> <x/> dois</x> O gato</x>", ["<x>um <x /> <x/> dois</x>"]),
        ("<x>aberto <x>um</x> O gato <x>um</x>", ["<x>um</x>"]),
    ],
)
def test_an_element_ends_with_the_tag_that_closes_it(
    url: str, translator: FakeTranslator, text: str, ignored: list[str]
) -> None:
    """The first that closes may be an inner one's, and what followed it was translated; an empty one opens nothing."""
    assert ask(url, text).status_code == 200
    assert list(translator.orders[0][3].glossary) == ignored


def test_equal_elements_count_once(url: str) -> None:
    """A text may say the same name a thousand times."""
    assert ask(url, "<x>um</x>" * 2000).status_code == 200


def test_too_many_elements_are_told_by_their_own_name(url: str) -> None:
    """Who sent no glossary must not be told of one."""
    refused = ask(url, "".join(f"<x>{number}</x>" for number in range(1001)))
    assert refused.status_code == 413
    assert "'ignore_tags' marks 1001 different elements" in refused.json()["detail"]
