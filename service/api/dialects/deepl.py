"""DeepL's API, version 2: `/v2/translate`, `/v2/languages`, `/v2/usage`, for its official clients unchanged.

A key is sent as `Authorization: DeepL-Auth-Key KEY` (or the older `auth_key` field). JSON and forms are taken.
Unknown fields are ignored, as DeepL does; our own decoding options (`beam_size`, …) work as extra fields.

| field of DeepL | here |
|---|---|
| `target_lang` EN-US, EN-GB, PT-BR, … | the region's bundle where there is one, else the language before the dash |
| `split_sentences` 0, 1, nonewlines | 0 keeps each line whole; 1 and nonewlines split (a line break always separates) |
| `tag_handling` xml, html | tags and entities are kept, as they are in every text |
| `ignore_tags` | with `tag_handling`: those elements are left as they are |
| `preserve_formatting`, `show_billed_characters` | always so |
| `context`, `model_type`, `outline_detection`, `splitting_tags`, `non_splitting_tags` | taken and not used: hints |
| `formality` default, prefer_more, prefer_less | taken and not used, as DeepL does where a language has no forms |
| `formality` more, less; `custom_instructions` | refused, 400: the answer would not be what was asked for |
| `glossary_id(s)`, `style_id`, `translation_memory_id` | refused, 400, for the same reason |

Errors are `{"message": str, "detail": str}`: the client joins both to a string. It knows 400, 403, 404, 429, 456 and
503, so 422 becomes 400 and an exhausted quota 456. The body has no field for warnings: they are in a response header.
"""

from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from dragoman.service.api.api_request import ApiRequest, bearer_key
from dragoman.service.api.dialects.base import DOCUMENTED_WARNINGS, Dialect
from dragoman.service.api.fields import Fields
from dragoman.service.api.json_answer import JSON, JsonAnswer
from dragoman.service.api.languages import name_of, read_code
from dragoman.service.api.metered import let_in, translate
from dragoman.service.api.refusals import COMMON_REFUSALS, document
from dragoman.service.errors import BadRequest, DragomanError, InvalidRequest, QuotaExceeded, TooLarge, UnknownPair
from dragoman.service.language_codes import base_language
from dragoman.service.translation.contract import AUTO, Translation, TranslationOptions
from dragoman.service.translation.markup import TAG_NAME, elements_named

MOST_IGNORED = 1000  # different elements: each is looked for like a term of a glossary
QUOTA_STATUS = 456  # DeepL's own
UNLIMITED = 1_000_000_000_000  # DeepL's answer for an account without a limit
VARIETIES = {  # the client refuses plain EN and PT as targets before it sends anything
    "en": (("EN-US", "English (American)"), ("EN-GB", "English (British)")),
    "pt": (("PT-BR", "Portuguese (Brazilian)"), ("PT-PT", "Portuguese (European)")),
}
REFUSED_FIELDS = (
    "glossary_id", "glossary_ids", "style_id", "translation_memory_id", "custom_instructions",
)  # fmt: skip


def status_of(error: DragomanError | type[DragomanError]) -> int:
    kind = error if isinstance(error, type) else type(error)
    if issubclass(kind, QuotaExceeded):
        return QUOTA_STATUS
    return 400 if issubclass(kind, InvalidRequest | UnknownPair) else kind.status


def render_error(error: DragomanError, request_id: str) -> Response:
    message = "Quota for this billing period has been exceeded." if isinstance(error, QuotaExceeded) else error.title
    return JsonAnswer({"message": message, "detail": error.detail}, status_of(error))


async def find_key(request: ApiRequest) -> str | None:
    scheme, _, key = (request.header(b"authorization") or "").partition(" ")
    sent = key.strip() if scheme.lower() == "deepl-auth-key" else bearer_key(request)
    return sent or (await request.fields()).text("auth_key")


router = APIRouter(prefix="/v2", tags=["deepl"])

ERROR_SCHEMA = {
    "type": "object",
    "properties": {"message": {"type": "string"}, "detail": {"type": "string"}},
    "required": ["message"],
}
RESPONSES = document((*COMMON_REFUSALS, TooLarge, QuotaExceeded), JSON, ERROR_SCHEMA, status_of)
TRANSLATE_SCHEMA = {
    "type": "object",
    "properties": {
        "text": {"type": "array", "items": {"type": "string"}, "minItems": 1},
        "source_lang": {"type": "string", "description": "Left out: detected"},
        "target_lang": {"type": "string"},
        "split_sentences": {"type": "string", "enum": ["0", "1", "nonewlines"]},
        "tag_handling": {"type": "string", "enum": ["xml", "html"]},
    },
    "required": ["text", "target_lang"],
}
TRANSLATE_EXAMPLE = {"text": ["O gato dorme."], "target_lang": "EN-US"}
TRANSLATE_BODY = {
    "required": True,
    "content": {
        "application/json": {"schema": TRANSLATE_SCHEMA, "example": TRANSLATE_EXAMPLE},
        "application/x-www-form-urlencoded": {"schema": TRANSLATE_SCHEMA, "example": TRANSLATE_EXAMPLE},
    },
}


@router.post(
    "/translate",
    summary="Translate, as DeepL does",
    responses=DOCUMENTED_WARNINGS | RESPONSES,
    openapi_extra={"requestBody": TRANSLATE_BODY},
)
async def post_translate(request: ApiRequest) -> Response:
    await let_in(request)
    fields = await request.fields()
    texts = fields.texts("text")
    if not texts:
        raise BadRequest("Parameter 'text' not specified.")
    result = await translate(request, texts, _source(fields), _target(fields), _options(fields, texts))
    pairs = zip(texts, result.translations, strict=True)
    answer = JsonAnswer({"translations": [_translation_json(text, translation) for text, translation in pairs]})
    request.record.dialect.carry_warnings(answer, result)
    return answer


@router.get("/languages", summary="Languages, as DeepL lists them", responses=RESPONSES)
@router.post("/languages", summary="The same, by POST", responses=RESPONSES, operation_id="languages")
async def get_languages(request: ApiRequest) -> Response:
    await let_in(request)
    fields = await request.fields()
    wanted = fields.text("type") or "source"
    if wanted not in ("source", "target"):
        raise BadRequest("Value for 'type' not supported; it is source or target.")
    routes = request.rooms.catalog.routes()
    # DeepL's sources have no region.
    codes = sorted({target if wanted == "target" else base_language(source) for source, target, _ in routes})
    named = [(code.upper(), name_of(code)) for code in codes]
    if wanted == "target":
        every = (variety for code in codes for variety in VARIETIES.get(code, ((code.upper(), name_of(code)),)))
        named = list(dict(every).items())
    return JsonAnswer([{"language": code, "name": name, "supports_formality": False} for code, name in named])


@router.get("/usage", summary="Characters used by this key", responses=RESPONSES)
async def get_usage(request: ApiRequest) -> Response:
    await let_in(request)
    key = request.key
    used = request.rooms.gate.usage.used(key.name) if key else 0
    limit = key.characters_per_month if key else None
    return JsonAnswer({"character_count": used, "character_limit": UNLIMITED if limit is None else limit})


def _source(fields: Fields) -> str:
    return _language(fields.text("source_lang") or AUTO, "source_lang")


def _target(fields: Fields) -> str:
    target = fields.text("target_lang")
    if not target:
        raise BadRequest("Parameter 'target_lang' not specified.")
    return _language(target, "target_lang")


def _language(code: str, name: str) -> str:
    language = read_code(code)
    if language is None:
        raise BadRequest(f"Value for '{name}' not supported.")
    return language


def _options(fields: Fields, texts: list[str]) -> TranslationOptions:
    for name in REFUSED_FIELDS:
        if any(fields.values.get(name, [])):
            raise BadRequest(f"Parameter '{name}' is not supported by this server; leave it out.")
    if (fields.text("formality") or "default") not in ("default", "prefer_more", "prefer_less"):
        raise BadRequest("'formality' is not supported for given 'target_lang'; use prefer_more or prefer_less.")
    if (fields.text("tag_handling") or "") not in ("", "xml", "html"):
        raise BadRequest("Value for 'tag_handling' not supported; it is xml or html.")
    split = fields.text("split_sentences")
    if split not in (None, "", "0", "1", "nonewlines", "true", "false"):
        raise BadRequest("Value for 'split_sentences' not supported; it is 0, 1 or nonewlines.")
    options = fields.options()
    glossary = {**options.glossary, **_ignored_elements(fields, texts)}
    return options._replace(split_sentences=split not in ("0", "false"), glossary=glossary)


def _ignored_elements(fields: Fields, texts: list[str]) -> dict[str, str]:
    """The elements that `ignore_tags` names, as terms of the glossary that translate to themselves."""
    if not fields.text("tag_handling"):
        return {}
    lists = fields.texts("ignore_tags") or []
    names = [name.strip() for part in lists for name in part.split(",") if name.strip()]
    if not all(TAG_NAME.fullmatch(name) for name in names):
        raise BadRequest("Value for 'ignore_tags' not supported; give a list of tag names.")
    elements = dict.fromkeys(element for text in texts for element in elements_named(text, frozenset(names)))
    if len(elements) > MOST_IGNORED:
        raise TooLarge(
            f"'ignore_tags' marks {len(elements)} different elements; send at most {MOST_IGNORED} in one request."
        )
    return {element: element for element in elements}


def _translation_json(text: str, translation: Translation) -> dict[str, Any]:
    return {
        "detected_source_language": translation.source.upper(),
        "text": translation.text,
        "billed_characters": len(text),
    }


DIALECT = Dialect(
    "deepl",
    (router,),
    render_error,
    prefixes=("/v2/", "/v3/"),
    find_key=find_key,
    key_schemes={
        "deepl": {
            "type": "apiKey",
            "in": "header",
            "name": "Authorization",
            "description": "`DeepL-Auth-Key` and a key, in DeepL's API; LibreTranslate's has the field `api_key`",
        }
    },
)
