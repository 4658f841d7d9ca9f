"""LibreTranslate's API: `/translate`, `/detect`, `/languages`, `/frontend/settings`, `/health`.

A key is the field `api_key`. JSON, forms and the query are taken, also in the body of a GET. `format` is `text` or
`html`; tags and entities are kept in both. Our own decoding options (`beam_size`, …) work as extra fields. Errors are
`{"error": str}`, with LibreTranslate's statuses: 400 for whatever is wrong with a request, 403 for a bad key, 429.
"""

from itertools import islice
from typing import Any

import orjson
from fastapi import APIRouter, Request
from starlette.responses import Response

from dragoman.service.api.context import Rooms, rooms_of
from dragoman.service.api.fields import Fields, read_fields
from dragoman.service.api.languages import may_be_code, name_of
from dragoman.service.api.limits import Caller
from dragoman.service.api.native import bearer_key
from dragoman.service.api.refusals import COMMON_REFUSALS, Dialect, document
from dragoman.service.api.work import Order, let_in, note, num_characters, translate
from dragoman.service.errors import BadRequest, DragomanError, InvalidRequest, TooLarge, UnknownPair
from dragoman.service.translation.contract import AUTO, Detection, Translation, TranslationOptions, TranslationResult
from dragoman.service.translation.variants import variants

BEAM_FOR_ALTERNATIVES = 4
PATHS = ("/translate", "/detect", "/languages", "/frontend/settings", "/health")


def status_of(error: DragomanError | type[DragomanError]) -> int:
    kind = error if isinstance(error, type) else type(error)
    return 400 if issubclass(kind, InvalidRequest | UnknownPair | TooLarge) else kind.status


def render_error(error: DragomanError, request_id: str) -> Response:
    detail = f"Slowdown: {error.detail}" if error.status == 429 else error.detail
    return Response(orjson.dumps({"error": detail}), status_of(error), media_type="application/json")


DIALECT = Dialect("libretranslate", claims=lambda path: path in PATHS, render=render_error)
router = APIRouter(tags=["libretranslate"])

ERROR_SCHEMA = {"type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]}
RESPONSES = document(COMMON_REFUSALS, "application/json", ERROR_SCHEMA, status_of)
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


def _caller(request: Request, rooms: Rooms, fields: Fields) -> Caller:
    return let_in(request, rooms, fields.text("api_key") or bearer_key(request))


@router.post(
    "/translate",
    summary="Translate, as LibreTranslate does",
    responses=RESPONSES,
    openapi_extra=_body(TRANSLATE_SCHEMA, {"q": "O gato dorme.", "source": "pt", "target": "en"}),
)
async def post_translate(request: Request) -> Response:
    rooms, fields = rooms_of(request), await read_fields(request)
    caller = _caller(request, rooms, fields)
    texts = _texts(fields)
    num_alternatives = fields.number("alternatives")
    source, target = _language(fields, "source"), _language(fields, "target")
    options = _options(fields, num_alternatives, rooms.settings.max_beam_size)
    result = await translate(request, rooms, caller, Order(texts, source, target, options))
    return _json(_answer(result, source, num_alternatives, fields.is_list("q")))


@router.post(
    "/detect",
    summary="Which of the languages served a text is in",
    responses=RESPONSES,
    openapi_extra=_body(DETECT_SCHEMA, {"q": "O gato dorme."}),
)
async def post_detect(request: Request) -> Response:
    rooms, fields = rooms_of(request), await read_fields(request)
    _caller(request, rooms, fields)
    text = _texts(fields)[0]
    note(request, Order([text], AUTO, "", TranslationOptions()))
    if num_characters([text]) > rooms.settings.max_characters:
        raise TooLarge(f"The text is longer than {rooms.settings.max_characters} characters.")
    return _json([_detection_json(detection) for detection in rooms.translator.detect(text)])


@router.get("/languages", summary="Languages, as LibreTranslate lists them", responses=RESPONSES)
async def get_languages(request: Request) -> Response:
    routes = rooms_of(request).catalog.routes()
    codes = sorted({source for source, _, _ in routes})
    # LibreTranslate lists a language among its own targets, and its clients show what is listed.
    return _json(
        [
            {"code": code, "name": name_of(code), "targets": sorted({code, *(t for s, t, _ in routes if s == code)})}
            for code in codes
        ]
    )


@router.get("/frontend/settings", summary="What LibreTranslate's own page asks for", responses=RESPONSES)
async def get_frontend_settings(request: Request) -> Response:
    rooms = rooms_of(request)
    routes = rooms.catalog.routes()
    target = {"code": routes[0][1], "name": name_of(routes[0][1])} if routes else {"code": "", "name": ""}
    return _json(
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
async def get_health() -> Response:
    return _json({"status": "ok"})


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
    if not may_be_code(code):
        raise BadRequest(f"Invalid request: {name} is not a language code")
    return code.lower()


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


def _json(content: Any) -> Response:
    return Response(orjson.dumps(content), media_type="application/json")
