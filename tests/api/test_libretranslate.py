"""LibreTranslate's contract, with `libretranslatepy` against a real server."""

from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError

import httpx
import pytest
from libretranslatepy import LibreTranslateAPI

from dragoman.service.api.keys import Key, digest, write_keys
from dragoman.service.errors import QueueFull
from tests.api.conftest import OpenServer
from tests.api.fakes import FakeTranslator


@pytest.fixture
def url(open_server: OpenServer) -> Iterator[str]:
    with open_server() as url:
        yield url


def test_the_client_translates(url: str) -> None:
    """Pointing an existing program here must be enough."""
    assert LibreTranslateAPI(url).translate("gato", "pt", "en") == "otag"


def test_the_client_detects(url: str) -> None:
    """Confidence is from 0 to 100, and the likeliest language comes first."""
    assert LibreTranslateAPI(url).detect("gato") == [
        {"confidence": 75.0, "language": "pt"},
        {"confidence": 25.0, "language": "en"},
    ]


def test_the_client_lists_languages(url: str) -> None:
    """The client sends a GET with a body, which must not disturb."""
    assert LibreTranslateAPI(url, api_key="unused").languages() == [
        {"code": "en", "name": "English", "targets": ["en", "pt"]},
        {"code": "pt", "name": "Portuguese", "targets": ["en", "pt"]},
    ]


def test_the_client_sees_errors_as_http_errors(url: str) -> None:
    """The client knows one exception; the body says what is wrong."""
    with pytest.raises(HTTPError) as refusal:
        LibreTranslateAPI(url).translate("gato", "pt", "xx")
    assert refusal.value.code == 400
    assert b"error" in refusal.value.read()
    refusal.value.close()


def test_a_key_is_the_field_api_key(open_server: OpenServer, tmp_path: Path) -> None:
    """LibreTranslate's way of sending a key, in the body of every method."""
    keys = tmp_path / "keys.json"
    write_keys(keys, [Key("page", digest("right"))])
    with open_server(keys_file=keys) as url:
        assert LibreTranslateAPI(url, api_key="right").translate("gato", "pt", "en") == "otag"
        assert LibreTranslateAPI(url, api_key="right").detect("gato")
        for key in ("wrong", None):
            with pytest.raises(HTTPError) as refusal:
                LibreTranslateAPI(url, api_key=key).translate("gato", "pt", "en")
            assert refusal.value.code == 403
            refusal.value.close()
        settings = httpx.get(f"{url}/frontend/settings").json()
        assert (settings["apiKeys"], settings["keyRequired"]) == (True, True)


def test_json_of_several_texts_gives_lists(url: str) -> None:
    """A list of one is still a list."""
    asked = {"q": ["gato"], "source": "auto", "target": "en", "alternatives": 1}
    assert httpx.post(f"{url}/translate", json=asked).json() == {
        "translatedText": ["otag"],
        "detectedLanguage": [{"confidence": 75.0, "language": "pt"}],
        "alternatives": [["otag'"]],
    }


def test_alternatives_change_nothing_but_the_segments(url: str) -> None:
    """The second best comes first, and what stands between the segments stays, also where it looks like one."""
    asked = {"q": "aba\n\n \naba", "source": "pt", "target": "en", "alternatives": 2}
    assert httpx.post(f"{url}/translate", json=asked).json()["alternatives"] == [
        "aba'\n\n '\naba'",
        "aba''\n\n ''\naba''",
    ]


def test_alternatives_ask_for_no_wider_beam_than_the_server_allows(open_server: OpenServer) -> None:
    """It was refused for a beam of four that nobody had asked for."""
    with open_server(max_beam_size=2) as url:
        asked = {"q": "gato", "source": "pt", "target": "en", "alternatives": 1}
        assert httpx.post(f"{url}/translate", json=asked).json()["alternatives"] == ["otag'"]


def test_a_single_text_gives_single_values(url: str) -> None:
    """`detectedLanguage` is there only for `auto`, `alternatives` only if asked for."""
    asked = {"q": "gato", "source": "pt", "target": "en"}
    assert httpx.post(f"{url}/translate", json=asked).json() == {"translatedText": "otag"}
    asked = {"q": "gato", "source": "auto", "target": "en"}
    assert httpx.post(f"{url}/translate", json=asked).json()["detectedLanguage"]["language"] == "pt"


def test_fields_may_come_in_the_query(url: str) -> None:
    """LibreTranslate reads the query too, and people use it from a browser's address bar."""
    response = httpx.post(f"{url}/translate", params={"q": "gato", "source": "pt", "target": "en"})
    assert response.json() == {"translatedText": "otag"}


def test_line_breaks_of_a_form_are_those_of_the_text(url: str, translator: FakeTranslator) -> None:
    """Browsers send CRLF in forms, which nobody typed; JSON is taken as it is."""
    asked = {"q": "um\r\ndois", "source": "pt", "target": "en"}
    assert httpx.post(f"{url}/translate", data=asked).json() == {"translatedText": "mu\nsiod"}
    httpx.post(f"{url}/translate", json=asked)
    assert translator.orders[1][0] == ["um\r\ndois"]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "missing q"),
        ({"q": "a"}, "missing source"),
        ({"q": "a", "source": "pt"}, "missing target"),
        ({"q": "a", "source": "pt", "target": "en", "format": "pdf"}, "format"),
        ({"q": "a", "source": "pt", "target": "en", "alternatives": "many"}, "alternatives"),
        ({"q": "a", "source": "pt", "target": "en", "alternatives": "99"}, "alternatives"),
        ({"q": "a", "source": "pt", "target": "E N"}, "language code"),
        ({"q": "a", "source": "pt", "target": "en", "beam_size": "0"}, "beam_size"),
        ({"q": "a", "source": "pt", "target": "en", "glossary": "{"}, "glossary is not JSON"),
    ],
)
def test_bad_requests_say_what_is_wrong(url: str, fields: dict[str, str], words: str) -> None:
    """One sentence in `error`, always 400."""
    response = httpx.post(f"{url}/translate", data=fields)
    assert response.status_code == 400
    assert words in response.json()["error"]


def test_a_form_that_is_not_utf_8_is_refused(url: str) -> None:
    """Replacing bytes by question marks would lose text silently."""
    response = httpx.post(
        f"{url}/translate",
        content=b"q=caf%E9&source=pt&target=en",
        headers={"Content-Type": "application/x-www-form-urlencoded"},
    )
    assert response.status_code == 400
    assert "UTF-8" in response.json()["error"]


def test_too_busy_is_called_a_slowdown(url: str, translator: FakeTranslator) -> None:
    """Programs look for LibreTranslate's word, and for when to come back."""

    async def refuse() -> None:
        raise QueueFull("The queue is full.", retry_after_seconds=2.4)

    translator.before = refuse
    response = httpx.post(f"{url}/translate", json={"q": "gato", "source": "pt", "target": "en"})
    assert (response.status_code, response.headers["retry-after"]) == (429, "3")
    assert response.json() == {"error": "Slowdown: The queue is full."}


def test_its_page_finds_its_settings_and_health(url: str) -> None:
    """LibreTranslate's own web page asks for both before it shows anything."""
    assert httpx.get(f"{url}/health").json() == {"status": "ok"}
    settings = httpx.get(f"{url}/frontend/settings").json()
    assert settings["language"]["source"]["code"] == "auto"
    assert settings["keyRequired"] is False


def test_pages_of_other_origins_may_call(url: str) -> None:
    """LibreTranslate allows every origin, and browser clients rely on it."""
    preflight = httpx.options(
        f"{url}/translate",
        headers={
            "Origin": "https://elsewhere.example",
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "content-type",
        },
    )
    assert preflight.headers["access-control-allow-origin"] == "*"
    answer = httpx.post(f"{url}/translate", json={}, headers={"Origin": "https://elsewhere.example"})
    assert answer.headers["access-control-allow-origin"] == "*"
