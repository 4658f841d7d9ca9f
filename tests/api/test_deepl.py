"""DeepL's contract, with DeepL's own client against a real server."""

import json
from collections.abc import Iterator
from pathlib import Path

import deepl
import httpx
import pytest

from dragoman.service.api.keys import Key, digest, write_keys
from dragoman.service.errors import BadRequest, DeadlineExceeded, NotReady, QueueFull
from tests.api.conftest import OpenServer
from tests.api.fakes import FakeTranslator


@pytest.fixture(autouse=True)
def _no_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client waits seconds between its five attempts; one is enough to see its exception."""
    monkeypatch.setattr(deepl.http_client, "max_network_retries", 0)


@pytest.fixture
def url(open_server: OpenServer) -> Iterator[str]:
    with open_server() as url:
        yield url


def open_deepl(url: str, key: str = "any") -> deepl.DeepLClient:
    return deepl.DeepLClient(key, server_url=url)


def test_the_client_translates_a_text(url: str) -> None:
    """Pointing an existing program here must be enough."""
    result = open_deepl(url).translate_text("gato", source_lang="PT", target_lang="EN-US")
    assert (result.text, result.detected_source_lang, result.billed_characters) == ("otag", "PT", 4)


def test_the_client_translates_several_texts_and_detects_their_language(url: str) -> None:
    """A list comes back as a list, in order."""
    results = open_deepl(url).translate_text(["um", "dois"], target_lang="EN-GB")
    assert [(result.text, result.detected_source_lang) for result in results] == [("mu", "PT"), ("siod", "PT")]


def test_regions_are_left_to_who_knows_the_bundles(url: str, translator: FakeTranslator) -> None:
    """EN-US is English where no bundle is for that region, and a bundle for Brazil is found where there is one."""
    open_deepl(url).translate_text("cat", source_lang="EN", target_lang="PT-BR")
    assert translator.orders[0][1:3] == ("en", "pt-br")


def test_the_client_lists_languages(url: str) -> None:
    """The client sends the target list's type as the body of a GET, and refuses plain EN as a target."""
    client = open_deepl(url)
    assert [language.code for language in client.get_source_languages()] == ["EN", "PT"]
    targets = [language.code for language in client.get_target_languages()]
    assert targets == ["EN-US", "EN-GB", "PT-BR", "PT-PT"]


def test_the_client_gets_usage_without_keys(url: str) -> None:
    """A server without keys has no limit, told as DeepL tells it."""
    usage = open_deepl(url).get_usage()
    assert usage.character.count == 0
    assert usage.character.limit == 1_000_000_000_000
    assert not usage.any_limit_reached


def test_decoding_options_pass_through_the_client(url: str, translator: FakeTranslator) -> None:
    """A beam is one extra parameter away for whoever stays with DeepL's client."""
    options = {"beam_size": 4, "glossary": {"gato": "tomcat"}, "strict": True}
    open_deepl(url).translate_text("gato", target_lang="EN-US", extra_body_parameters=options)
    asked = translator.orders[0][3]
    assert (asked.beam_size, asked.glossary, asked.strict) == (4, {"gato": "tomcat"}, True)


def test_harmless_options_of_the_client_are_taken(url: str) -> None:
    """Programs send what DeepL takes; a hint that we do not use is no reason to fail."""
    result = open_deepl(url).translate_text(
        "gato",
        target_lang="PT-BR",
        source_lang="EN",
        context="animals",
        split_sentences=deepl.SplitSentences.NO_NEWLINES,
        preserve_formatting=True,
        formality=deepl.Formality.PREFER_LESS,
        tag_handling="html",
        outline_detection=False,
        splitting_tags=["p"],
        model_type="prefer_quality_optimized",
    )
    assert result.text == "otag"


def test_split_sentences_off_reaches_the_translator(url: str, translator: FakeTranslator) -> None:
    """The one splitting option that changes the answer must not be lost."""
    open_deepl(url).translate_text("gato", target_lang="EN-US", split_sentences=deepl.SplitSentences.OFF)
    assert translator.orders[0][3].split_sentences is False


def test_ignored_elements_are_left_alone(url: str, translator: FakeTranslator) -> None:
    """`ignore_tags` marks what must not be translated: code, names."""
    text = "Use <x>ls -l</x> aqui."
    open_deepl(url).translate_text(text, target_lang="EN-US", tag_handling="xml", ignore_tags=["x"])
    assert translator.orders[0][3].glossary == {"<x>ls -l</x>": "<x>ls -l</x>"}


def test_ignored_elements_end_at_the_next_tag_that_closes_them(url: str, translator: FakeTranslator) -> None:
    """Attributes, line breaks and other tags within belong to them; names that are not closed are nothing."""
    text = '<y>a</y> <x id="1">b <y>c</y>\n</x > <z>d <x>e</x> <x>f'
    open_deepl(url).translate_text(text, target_lang="EN-US", tag_handling="xml", ignore_tags=["x", "z"])
    assert list(translator.orders[0][3].glossary) == ['<x id="1">b <y>c</y>\n</x >', "<x>e</x>"]


@pytest.mark.parametrize("names", [["x"] * 200_000, [f"x{number}" for number in range(100_000)]])
def test_tags_that_nobody_closes_hold_up_nobody(url: str, names: list[str]) -> None:
    """Each of them was looked for up to the end of the text, on the event loop: this one would have taken minutes."""
    text = "".join(f"<{name}>" for name in names)
    body = {"text": [text], "target_lang": "EN", "tag_handling": "xml", "ignore_tags": list(dict.fromkeys(names))}
    assert httpx.post(f"{url}/v2/translate", json=body, timeout=60).status_code in (200, 413)


@pytest.mark.parametrize(
    "options",
    [
        {"formality": "more"},
        {"glossary": "some-id"},
        {"custom_instructions": ["like a pirate"]},
        {"style_rule": "some-id"},
    ],
)
def test_what_would_change_the_answer_is_refused(url: str, options: dict[str, object]) -> None:
    """An answer that ignored an instruction would be wrong without anybody knowing."""
    with pytest.raises(deepl.DeepLException, match="Bad request") as refusal:
        open_deepl(url).translate_text("gato", source_lang="PT", target_lang="EN-US", **options)
    assert refusal.value.http_status_code == 400


@pytest.mark.parametrize(
    ("error", "exception", "words"),
    [
        (BadRequest("Mend it."), deepl.DeepLException, "Bad request.*Mend it"),
        (QueueFull("Wait.", 7), deepl.TooManyRequestsException, "Wait"),
        (NotReady("Soon."), deepl.DeepLException, "Service unavailable.*Soon"),
        (DeadlineExceeded("Late."), deepl.DeepLException, "504.*Late"),
        (RuntimeError("secret"), deepl.DeepLException, "500"),
    ],
)
def test_errors_become_the_clients_own_exceptions(
    url: str, translator: FakeTranslator, error: Exception, exception: type[Exception], words: str
) -> None:
    """FastAPI's own error body makes this client crash with a TypeError."""

    async def fail() -> None:
        raise error

    translator.before = fail
    with pytest.raises(exception, match=words):
        open_deepl(url).translate_text("gato", target_lang="EN-US")


def test_an_unknown_language_is_a_bad_request(url: str) -> None:
    """DeepL answers 400 for a language it does not know."""
    with pytest.raises(deepl.DeepLException, match="Bad request"):
        open_deepl(url).translate_text("gato", target_lang="XX")


def test_glossaries_of_the_client_are_not_found(url: str) -> None:
    """What is not there says so in a shape that the client understands."""
    with pytest.raises(deepl.DeepLException, match=r"(?i)not found"):
        open_deepl(url).list_multilingual_glossaries()


def test_keys_and_quotas_map_to_the_clients_exceptions(open_server: OpenServer, tmp_path: Path) -> None:
    """403 for a wrong key and 456 for an exhausted quota are the only statuses this client understands."""
    keys = tmp_path / "keys.json"
    write_keys(keys, [Key("small", digest("right"), characters_per_month=10)])
    with open_server(keys_file=keys, state_dir=tmp_path / "state") as url:
        with pytest.raises(deepl.AuthorizationException):
            open_deepl(url, "wrong").translate_text("gato", target_lang="EN-US")
        client = open_deepl(url, "right")
        client.translate_text("12345678", target_lang="EN-US")
        assert (client.get_usage().character.count, client.get_usage().character.limit) == (8, 10)
        with pytest.raises(deepl.QuotaExceededException):
            client.translate_text("gato", target_lang="EN-US")
        assert client.get_usage().character.count == 8


def test_forms_are_taken_with_repeated_text(url: str) -> None:
    """DeepL's mock server and many hand-written clients send forms."""
    fields = {"text": ["um", "dois"], "target_lang": "EN"}
    response = httpx.post(f"{url}/v2/translate", data=fields, headers={"Authorization": "DeepL-Auth-Key x"})
    assert [item["text"] for item in response.json()["translations"]] == ["mu", "siod"]


def test_multipart_forms_are_taken(url: str) -> None:
    """Some HTTP libraries send every form as multipart."""
    response = httpx.post(f"{url}/v2/translate", files={"text": (None, "um"), "target_lang": (None, "EN")})
    assert response.json()["translations"][0]["text"] == "mu"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"{", "not JSON"),
        (b"[]", "JSON object"),
        (b"{}", "'text' not specified"),
        (b'{"text": ["a"]}', "'target_lang' not specified"),
        (b'{"text": [1], "target_lang": "EN"}', "text must be"),
        (b'{"text": ["a"], "target_lang": "EN", "beam_size": "many"}', "beam_size"),
        (b'{"text": ["a"], "target_lang": "EN", "type": "x", "split_sentences": "9"}', "split_sentences"),
        (b'{"text": ["\\ud800"], "target_lang": "EN"}', "surrogate"),
    ],
)
def test_bad_requests_are_told_in_strings(url: str, body: bytes, words: str) -> None:
    """Both members must be strings: the client joins them."""
    response = httpx.post(f"{url}/v2/translate", content=body, headers={"Content-Type": "application/json"})
    content = json.loads(response.content)
    assert response.status_code == 400
    assert words in content["detail"]
    assert all(isinstance(value, str) for value in content.values())
