"""The native API, `/v1`: translate, stream, models, languages; errors as RFC 9457 problems.

A key is sent as `Authorization: Bearer KEY`. Answers are written by hand-made dictionaries and orjson; the pydantic
models document them, and tests hold the two together.
"""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import asdict
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from dragoman.service.api import schemas
from dragoman.service.api.connection import while_connected
from dragoman.service.api.context import header_in, record_in, rooms_of
from dragoman.service.api.languages import name_of
from dragoman.service.api.limits import Caller
from dragoman.service.api.refusals import COMMON_REFUSALS, Dialect, as_dragoman_error, document
from dragoman.service.api.schemas import finite
from dragoman.service.api.sse import Event, EventStream, document_events
from dragoman.service.api.work import Order, let_in, stream, translate
from dragoman.service.errors import DragomanError, InvalidRequest, TooLarge, UnknownPair
from dragoman.service.translation.contract import (
    DoneEvent,
    Segment,
    SegmentEvent,
    StreamEvent,
    TokenEvent,
    Translation,
    TranslationResult,
)

PROBLEM_JSON = "application/problem+json"
INLINE_SEGMENTS = 50  # written upon the event loop; more would make other requests wait
REFUSALS = (*COMMON_REFUSALS, UnknownPair, TooLarge, InvalidRequest)


def render_error(error: DragomanError, request_id: str) -> Response:
    return Response(orjson.dumps(problem(error, request_id)), error.status, media_type=PROBLEM_JSON)


def problem(error: DragomanError, request_id: str) -> dict[str, Any]:
    return {
        "type": f"urn:dragoman:problem:{error.reason}",
        "title": error.title,
        "status": error.status,
        "detail": error.detail,
        "reason": error.reason,
        "request_id": request_id,
    }


PROBLEM_SCHEMA = schemas.Problem.model_json_schema()  # once, for all routes


def document_refusals(*errors: type[DragomanError]) -> dict[int | str, dict[str, Any]]:
    return document(errors, PROBLEM_JSON, PROBLEM_SCHEMA)


DIALECT = Dialect("native", claims=lambda path: path.startswith("/v1/"), render=render_error)
router = APIRouter(prefix="/v1", tags=["native"])


def bearer_key(request: Request) -> str | None:
    scheme, _, key = (header_in(request.scope, b"authorization") or "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else None


async def caller_of(request: Request) -> Caller:
    """A dependency, so that it comes before the body is checked: who may not ask learns nothing else."""
    return let_in(request, rooms_of(request), bearer_key(request))


UsesCaller = Annotated[Caller, Depends(caller_of)]


@router.post(
    "/translate",
    summary="Translate one text or several",
    response_model=schemas.TranslateResponse,
    responses=document_refusals(*REFUSALS),
)
async def post_translate(body: schemas.TranslateRequest, request: Request, caller: UsesCaller) -> Response:
    order = Order(body.texts, body.source, body.target, body.options())
    result = await translate(request, rooms_of(request), caller, order)
    if sum([len(translation.segments) for translation in result.translations]) > INLINE_SEGMENTS:
        return await asyncio.to_thread(lambda: _json(result_json(result)))
    return _json(result_json(result))


@router.post(
    "/translate/stream",
    summary="Translate one text, and send each word as it is decoded",
    response_class=Response,
    responses={
        200: {
            "description": "Server-sent events: `token` {segment, text}, `segment` {index, …}, `done` (what "
            "`/v1/translate` answers), or `error` (a problem). The texts of all tokens, joined, are the translation. "
            "With a beam whole segments come at once.",
            "content": document_events("token", "segment", "done", "error"),
        },
        **document_refusals(*REFUSALS),
    },
)
async def post_stream(body: schemas.StreamRequest, request: Request, caller: UsesCaller) -> Response:
    order = Order([body.text], body.source, body.target, body.options())
    events = stream(request, rooms_of(request), caller, order)
    try:
        # A refusal before the first event is still an ordinary answer with its own status.
        first = await while_connected(request.receive, anext(events))
    except BaseException:
        await events.aclose()
        raise
    return EventStream(_wire_events(first, events, request))


@router.get("/models", summary="The bundles that serve, and their evidence", response_model=schemas.ModelsResponse)
async def get_models(request: Request) -> Response:
    models = [
        {
            "name": bundle.name,
            "version": bundle.version,
            "precision": bundle.precision,
            "pairs": [{"source": pair.source, "target": pair.target} for pair in bundle.pairs],
            "architecture": asdict(bundle.architecture),
            "limits": asdict(bundle.limits),
            "evidence": bundle.evidence,
            "training": bundle.training,
        }
        for bundle in rooms_of(request).catalog.bundles()
    ]
    return _json({"models": models})


@router.get("/languages", summary="What can be translated into what", response_model=schemas.LanguagesResponse)
async def get_languages(request: Request) -> Response:
    routes = rooms_of(request).catalog.routes()
    targets = {source: [target for start, target, _ in routes if start == source] for source, _, _ in routes}
    codes = sorted(set(targets) | {target for _, target, _ in routes})
    return _json(
        {
            "languages": [{"code": code, "name": name_of(code), "targets": targets.get(code, [])} for code in codes],
            "pairs": [{"source": source, "target": target, "pivot": pivot} for source, target, pivot in routes],
        }
    )


async def _wire_events(
    first: StreamEvent, rest: AsyncGenerator[StreamEvent, None], request: Request
) -> AsyncGenerator[Event, None]:
    try:
        yield _event(first)
        async for event in rest:
            yield _event(event)
    except Exception as error:
        record = record_in(request.scope)
        known = as_dragoman_error(error)
        record.reason = known.reason
        yield "error", problem(known, record.request_id)
    finally:
        await rest.aclose()


def _event(event: StreamEvent) -> Event:
    match event:
        case TokenEvent(segment, text):
            return "token", {"segment": segment, "text": text}
        case SegmentEvent(index, segment):
            return "segment", {"index": index, **segment_json(segment)}
        case DoneEvent(result):
            return "done", result_json(result)


def result_json(result: TranslationResult) -> dict[str, Any]:
    timings = result.timings
    return {
        "translations": [_translation_json(translation) for translation in result.translations],
        "model": {"name": result.model_name, "version": result.model_version},
        "timings": {
            "queue_ms": round(timings.queue_seconds * 1000, 3),
            "encode_ms": round(timings.encode_seconds * 1000, 3),
            "decode_ms": round(timings.decode_seconds * 1000, 3),
        },
    }


def _translation_json(translation: Translation) -> dict[str, Any]:
    return {
        "text": translation.text,
        "source": translation.source,
        "detected": translation.detected and asdict(translation.detected),
        "pivot": translation.pivot,
        "segments": [segment_json(segment) for segment in translation.segments],
    }


def segment_json(segment: Segment) -> dict[str, Any]:
    log_probs = segment.log_probs
    return {
        "source": segment.source,
        "text": segment.text,
        "score": finite(segment.score),
        "finish_reason": segment.finish_reason,
        "num_tokens": segment.num_tokens,
        "warnings": segment.warnings,
        "alternatives": [{"text": other.text, "score": finite(other.score)} for other in segment.alternatives],
        "log_probs": log_probs and [{"token": t.token, "log_prob": finite(t.log_prob)} for t in log_probs],
    }


def _json(content: Any) -> Response:
    return _Json(orjson.dumps(content))


class _Json(Response):
    """JSON with the two headers that it has, which Starlette would take longer to work out than orjson to write it."""

    media_type = "application/json"

    def __init__(self, body: bytes) -> None:
        self.status_code, self.background, self.body = 200, None, body
        self.raw_headers = [(b"content-length", b"%d" % len(body)), (b"content-type", b"application/json")]
