"""The native API, `/v1`: translate, stream, models, languages, explanations, live state; errors as RFC 9457 problems.

A key is sent as `Authorization: Bearer KEY`. Answers are hand-made dictionaries; the pydantic models document them, and
tests hold the two together.
"""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import asdict
from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from dragoman.service.api.api_request import ApiRequest
from dragoman.service.api.connection import while_connected
from dragoman.service.api.dialects import explain, live, native_schemas
from dragoman.service.api.dialects.base import Dialect, warn_in_body
from dragoman.service.api.dialects.native_schemas import finite
from dragoman.service.api.json_answer import JsonAnswer
from dragoman.service.api.languages import name_of
from dragoman.service.api.metered import let_in, stream, translate
from dragoman.service.api.problems import TRANSLATION_PROBLEMS, document_problems, problem, render_problem
from dragoman.service.api.refusals import as_dragoman_error
from dragoman.service.api.sse import Event, EventStream, document_events
from dragoman.service.api.validation import document_body, read_json
from dragoman.service.translation.contract import (
    DoneEvent,
    Segment,
    SegmentEvent,
    StreamEvent,
    TokenEvent,
    Translation,
    TranslationResult,
)

INLINE_SEGMENTS = 50  # an answer with more is written on another thread: other requests would have to wait

router = APIRouter(prefix="/v1", tags=["native"])


@router.post(
    "/translate",
    summary="Translate one text or several",
    response_model=native_schemas.TranslateResponse,
    responses=document_problems(*TRANSLATION_PROBLEMS),
    openapi_extra=document_body(native_schemas.TranslateRequest),
)
async def post_translate(request: ApiRequest) -> Response:
    await let_in(request)
    asked = read_json(request, native_schemas.TranslateRequest)
    result = await translate(request, asked.texts, asked.source, asked.target, asked.options())
    if sum([len(translation.segments) for translation in result.translations]) > INLINE_SEGMENTS:
        return await asyncio.to_thread(lambda: JsonAnswer(result_json(result)))
    return JsonAnswer(result_json(result))


@router.post(
    "/translate/stream",
    summary="Translate one text, and send each word as it is decoded",
    response_class=Response,
    responses={
        200: {
            "description": "Server-sent events: `token` {segment, text}, `segment` {index, …}, `done` (what "
            "`/v1/translate` answers), or `error` (a problem). The texts of all tokens, joined, are the translation. "
            "With a beam, whole segments come at once.",
            "content": document_events("token", "segment", "done", "error"),
        },
        **document_problems(*TRANSLATION_PROBLEMS),
    },
    openapi_extra=document_body(native_schemas.StreamRequest),
)
async def post_stream(request: ApiRequest) -> Response:
    await let_in(request)
    asked = read_json(request, native_schemas.StreamRequest)
    events = stream(request, asked.text, asked.source, asked.target, asked.options())
    try:
        with while_connected(request.receive):
            first = await anext(events)  # a refusal before the first event is an ordinary answer with its own status
    except BaseException:
        await events.aclose()
        raise
    return EventStream(_wire_events(first, events, request))


@router.get(
    "/models", summary="The bundles that serve, and their evidence", response_model=native_schemas.ModelsResponse
)
async def get_models(request: ApiRequest) -> Response:
    models = [
        {
            "state": status.state,
            "memory_bytes": status.num_bytes,
            "idle_seconds": None if status.idle_seconds is None else round(status.idle_seconds, 3),
            "name": bundle.name,
            "version": bundle.version,
            "precision": bundle.precision,
            "pairs": [{"source": pair.source, "target": pair.target} for pair in bundle.pairs],
            "architecture": asdict(bundle.architecture),
            "limits": asdict(bundle.limits),
            "evidence": bundle.evidence,
            "training": bundle.training,
        }
        for status in request.rooms.catalog.statuses()
        for bundle in (status.bundle,)
    ]
    return JsonAnswer({"models": models})


@router.get("/languages", summary="What can be translated into what", response_model=native_schemas.LanguagesResponse)
async def get_languages(request: ApiRequest) -> Response:
    routes = request.rooms.catalog.routes()
    targets = {source: [target for start, target, _ in routes if start == source] for source, _, _ in routes}
    codes = sorted(set(targets) | {target for _, target, _ in routes})
    return JsonAnswer(
        {
            "languages": [{"code": code, "name": name_of(code), "targets": targets.get(code, [])} for code in codes],
            "pairs": [{"source": source, "target": target, "pivot": pivot} for source, target, pivot in routes],
        }
    )


async def _wire_events(
    first: StreamEvent, rest: AsyncGenerator[StreamEvent, None], request: ApiRequest
) -> AsyncGenerator[Event, None]:
    try:
        yield _event(first)
        async for event in rest:
            yield _event(event)
    except Exception as error:
        known = as_dragoman_error(error)
        request.record.reason = known.reason
        yield "error", problem(known, request.record.request_id)
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
        "target": result.target,
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


DIALECT = Dialect(
    "native",
    routers=(router, explain.router, live.router),
    render_error=render_problem,
    prefixes=("/v1/",),
    carry_warnings=warn_in_body,
    key_schemes={"bearer": {"type": "http", "scheme": "bearer", "description": "A key, in every API"}},
    bodies=(native_schemas.TranslateRequest, native_schemas.StreamRequest, explain.ExplainRequest),
)
