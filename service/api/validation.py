"""Reads a JSON body or a query as a pydantic model, and documents both for OpenAPI."""

import json
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from dragoman.service.api.api_request import ApiRequest
from dragoman.service.api.sentences import describe
from dragoman.service.errors import BadRequest, DragomanError, InvalidRequest

M = TypeVar("M", bound=BaseModel)

NOT_AN_OBJECT = frozenset({"model_type", "model_attributes_type", "dict_type"})


def read_json(request: ApiRequest, model: type[M]) -> M:
    """The body as a model. Raises BadRequest where it is no JSON object, else InvalidRequest."""
    if not request.content or not _is_json(request.header(b"content-type") or ""):
        raise _no_object()
    try:
        return model.model_validate_json(request.content)
    except ValidationError:
        return _read_again(request.content, model)


def read_query(request: ApiRequest, model: type[M]) -> M:
    try:
        return model.model_validate(dict(request.query_params))
    except ValidationError as error:
        raise _refusal(error) from None


def document_body(model: type[BaseModel]) -> dict[str, Any]:
    """For `openapi_extra`. The dialect lists the model among its `bodies`, where the reference leads."""
    content = {"schema": {"$ref": f"#/components/schemas/{model.__name__}"}}
    return {"requestBody": {"required": True, "content": {"application/json": content}}}


def document_query(model: type[BaseModel]) -> dict[str, Any]:
    """For `openapi_extra`."""
    schemas = model.model_json_schema()["properties"]
    return {"parameters": [_parameter(name, schema) for name, schema in schemas.items()]}


def _parameter(name: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": name,
        "in": "query",
        "required": "default" not in schema,
        "schema": schema,
        "description": schema["description"],
    }


def _is_json(content_type: str) -> bool:
    main, _, subtype = content_type.partition(";")[0].strip().lower().partition("/")
    return main == "application" and (subtype == "json" or subtype.endswith("+json"))


def _read_again(content: bytes, model: type[M]) -> M:
    """With Python's own parser: pydantic's cannot tell bad bytes from bad JSON, and refuses half a surrogate pair,
    about which the translator has a clearer sentence."""
    try:
        values = json.loads(content)
    except json.JSONDecodeError:
        raise BadRequest("The body is not JSON.") from None
    except UnicodeDecodeError:
        raise BadRequest("The body is not UTF-8; encode it as UTF-8.") from None
    except (ValueError, RecursionError):  # thousands of digits, or of brackets
        raise BadRequest("The request could not be read; check its body and its headers.") from None
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise _refusal(error) from None


def _refusal(error: ValidationError) -> DragomanError:
    first = error.errors(include_url=False)[0]
    if first["type"] in NOT_AN_OBJECT and not first["loc"]:
        return _no_object()
    return InvalidRequest(describe(error))


def _no_object() -> BadRequest:
    return BadRequest("The body must be a JSON object, sent with Content-Type: application/json.")
