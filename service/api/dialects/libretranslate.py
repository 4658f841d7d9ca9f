"""LibreTranslate's API: `/translate`, `/detect`, `/languages`, `/frontend/settings`, `/health`.

A key is the field `api_key`. JSON, forms and the query are taken, also in the body of a GET. `format` is `text` or
`html`; tags and entities are kept in both. Our own decoding options (`beam_size`, …) work as extra fields. Errors are
`{"error": str}`, with LibreTranslate's statuses: 400 for whatever is wrong with a request, 403 for a bad key, 429.
The body has no field for warnings: they are in a response header.
"""

from itertools import islice
from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from dragoman.service.api.api_request import ApiRequest, bearer_key
from dragoman.service.api.dialects.base import DOCUMENTED_WARNINGS, Dialect
from dragoman.service.api.fields import Fields
from dragoman.service.api.json_answer import JSON, JsonAnswer
from dragoman.service.api.languages import name_of, read_code
from dragoman.service.api.metered import let_in, note_texts, translate
from dragoman.service.api.refusals import COMMON_REFUSALS, document
from dragoman.service.errors import BadRequest, DragomanError, InvalidRequest, TooLarge, UnknownPair
from dragoman.service.translation.contract import AUTO, Detection, Translation, TranslationOptions, TranslationResult
from dragoman.service.translation.variants import variants

BEAM_FOR_ALTERNATIVES = 4


def status_of(error: DragomanError | type[DragomanError]) -> int:
    kind = error if isinstance(error, type) else type(error)
    return 400 if issubclass(kind, InvalidRequest | UnknownPair | TooLarge) else kind.status


def render_error(error: DragomanError, request_id: str) -> Response:
    detail = f"Slowdown: {error.detail}" if error.status == 429 else error.detail
    return JsonAnswer({"error": detail}, status_of(error))


async def find_key(request: ApiRequest) -> str | None:
    return (await request.fields()).text("api_key") or bearer_key(request)


router = APIRouter(tags=["libretranslate"])

ERROR_SCHEMA = {"type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]}
RESPONSES = document(COMMON_REFUSALS, JSON, ERROR_SCHEMA, status_of)
TRANSLATE_SCHEMA = {
    "type": "object",
    "properties": {
        "q": {"oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
        "source": {"type": "string", "description": "A language code, or auto"},
        "target": {"type": "string"},
        "format": {"type": "string", "enum": ["text", "html"]},
        "alternatives": {"type": "integer", "minimum": 0},
        "api_key": {"type": "string"},
    },
    "required": ["q", "source", "target"],
}
DETECT_SCHEMA = {
    "type": "object",
    "properties": {"q": {"type": "string"}, "api_key": {"type": "string"}},
    "required": ["q"],
}


def _body(schema: dict[str, Any], example: dict[str, Any]) -> dict[str, Any]:
    content = {"schema": schema, "example": example}
    return {"requestBody": {"content": {"application/json": content, "application/x-www-form-urlencoded": content}}}


@router.post(
    "/translate",
    summary="Translate, as LibreTranslate does",
    responses=DOCUMENTED_WARNINGS | RESPONSES,
    openapi_extra=_body(TRANSLATE_SCHEMA, {"q": "O gato dorme.", "source": "pt", "target": "en"}),
)
async def post_translate(request: ApiRequest) -> Response:
    await let_in(request)
    fields = await request.fields()
    texts = _texts(fields)
    num_alternatives = fields.number("alternatives")
    source, target = _language(fields, "source"), _language(fields, "target")
    options = _options(fields, num_alternatives, request.rooms.settings.max_beam_size)
    result = await translate(request, texts, source, target, options)
    answer = JsonAnswer(_answer(result, source, num_alternatives, fields.is_list("q")))
    request.record.dialect.carry_warnings(answer, result)
    return answer


@router.post(
    "/detect",
    summary="Which of the languages served a text is in",
    responses=RESPONSES,
    openapi_extra=_body(DETECT_SCHEMA, {"q": "O gato dorme."}),
)
async def post_detect(request: ApiRequest) -> Response:
    await let_in(request)
    fields = await request.fields()
    text, limit = _texts(fields)[0], request.rooms.settings.max_characters
    if note_texts(request, [text]) > limit:
        raise TooLarge(f"The text is longer than {limit} characters; send a part of it.")
    return JsonAnswer([_detection_json(detection) for detection in request.rooms.translator.detect(text)])


@router.get("/languages", summary="Languages, as LibreTranslate lists them", responses=RESPONSES)
async def get_languages(request: ApiRequest) -> Response:
    routes = request.rooms.catalog.routes()
    codes = sorted({source for source, _, _ in routes})
    # LibreTranslate lists a language among its own targets, and its clients show what is listed.
    return JsonAnswer(
        [
            {"code": code, "name": name_of(code), "targets": sorted({code, *(t for s, t, _ in routes if s == code)})}
            for code in codes
        ]
    )


@router.get("/frontend/settings", summary="What LibreTranslate's own page asks for", responses=RESPONSES)
async def get_frontend_settings(request: ApiRequest) -> Response:
    rooms = request.rooms
    routes = rooms.catalog.routes()
    target = {"code": routes[0][1], "name": name_of(routes[0][1])} if routes else {"code": "", "name": ""}
    return JsonAnswer(
        {
            "charLimit": rooms.settings.max_characters,
            "frontendTimeout": 500,
            "apiKeys": rooms.gate.keys.in_use,
            "keyRequired": rooms.gate.key_required,
            "suggestions": False,
            "filesTranslation": False,
            "supportedFilesFormat": [],
            "language": {"source": {"code": AUTO, "name": "Auto Detect"}, "target": target},
        }
    )


@router.get("/health", summary="Alive, as LibreTranslate says it")
async def get_health(request: ApiRequest) -> Response:
    return JsonAnswer({"status": "ok"})


def _texts(fields: Fields) -> list[str]:
    texts = fields.texts("q")
    if not texts:
        raise BadRequest("Invalid request: missing q parameter")
    # Browsers send a form's line breaks as CRLF; LibreTranslate takes them back, so we do.
    return [text.replace("\r\n", "\n") for text in texts] if fields.from_form else texts


def _language(fields: Fields, name: str) -> str:
    code = fields.text(name)
    if not code:
        raise BadRequest(f"Invalid request: missing {name} parameter")
    language = read_code(code)
    if language is None:
        raise BadRequest(f"Invalid request: {name} is not a language code")
    return language


def _options(fields: Fields, num_alternatives: int, max_beam_size: int) -> TranslationOptions:
    if (fields.text("format") or "text") not in ("text", "html"):
        raise BadRequest("Invalid request: format is text or html")
    if num_alternatives == 0:
        return fields.options(n_best=1)
    if num_alternatives >= max_beam_size:
        raise BadRequest(f"Invalid request: alternatives can be at most {max_beam_size - 1}")
    wanted = num_alternatives + 1
    usual = min(BEAM_FOR_ALTERNATIVES, max_beam_size)
    return fields.options(n_best=wanted, beam_size=max(wanted, fields.number("beam_size", usual)))


def _answer(result: TranslationResult, source: str, num_alternatives: int, several: bool) -> dict[str, Any]:
    """Lists for a list of texts, single values for a single one."""
    translations = result.translations
    columns: dict[str, list[Any]] = {"translatedText": [translation.text for translation in translations]}
    if source == AUTO:
        columns["detectedLanguage"] = [_detected_json(translation) for translation in translations]
    if num_alternatives:
        columns["alternatives"] = [_alternatives(translation, num_alternatives) for translation in translations]
    return {name: column if several else column[0] for name, column in columns.items()}


def _alternatives(translation: Translation, count: int) -> list[str]:
    """Whole texts, the second best first; one that changes nothing is left out."""
    texts = [text for text, _ in islice(variants(translation), 1, count + 1)]
    return [text for text in dict.fromkeys(texts) if text != translation.text]


def _detected_json(translation: Translation) -> dict[str, Any]:
    return _detection_json(translation.detected or Detection(translation.source, 0.0))


def _detection_json(detection: Detection) -> dict[str, Any]:
    return {"confidence": round(detection.confidence * 100, 1), "language": detection.language}


DIALECT = Dialect("libretranslate", (router,), render_error, find_key=find_key)
