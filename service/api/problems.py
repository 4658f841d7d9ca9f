"""Errors as RFC 9457 problems: what the native API and the endpoints for operations answer."""

from typing import Any

from starlette.responses import Response

from dragoman.service.api.dialects.native_schemas import Problem
from dragoman.service.api.json_answer import JsonAnswer
from dragoman.service.api.refusals import COMMON_REFUSALS, document
from dragoman.service.errors import DragomanError, InvalidRequest, TooLarge, UnknownPair

PROBLEM_JSON = "application/problem+json"
TRANSLATION_PROBLEMS = (*COMMON_REFUSALS, UnknownPair, TooLarge, InvalidRequest)
PROBLEM_SCHEMA = Problem.model_json_schema()  # once, for all routes


def render_problem(error: DragomanError, request_id: str) -> Response:
    return JsonAnswer(problem(error, request_id), error.status, PROBLEM_JSON)


def problem(error: DragomanError, request_id: str) -> dict[str, Any]:
    return {
        "type": f"urn:dragoman:problem:{error.reason}",
        "title": error.title,
        "status": error.status,
        "detail": error.detail,
        "reason": error.reason,
        "request_id": request_id,
    }


def document_problems(*errors: type[DragomanError]) -> dict[int | str, dict[str, Any]]:
    return document(errors, PROBLEM_JSON, PROBLEM_SCHEMA)
