"""The OpenAPI document: FastAPI's own, with what it cannot see in endpoints that read their bodies themselves."""

from collections.abc import Iterable, Sequence
from typing import Any

from fastapi import FastAPI
from fastapi.encoders import jsonable_encoder
from fastapi.openapi.models import Components
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from dragoman.service.api.dialects.base import Dialect


def extend_document(app: FastAPI, dialects: Sequence[Dialect]) -> None:
    """Describe JSON bodies, and how keys are sent, so that the page can send one. A server without keys needs none."""
    generate = app.openapi
    schemas = _schemas([body for dialect in dialects for body in dialect.bodies])
    key_schemes = {name: scheme for dialect in dialects for name, scheme in dialect.key_schemes.items()}

    def openapi() -> dict[str, Any]:
        document = generate()
        components = document["components"]
        components["schemas"] = dict(sorted({**components["schemas"], **schemas}.items()))
        components["securitySchemes"] = key_schemes
        document["security"] = [{}, *({name: []} for name in key_schemes)]
        return document

    app.openapi = openapi  # type: ignore[method-assign] # FastAPI's own way to change the document


def _schemas(bodies: Iterable[type[BaseModel]]) -> dict[str, Any]:
    """Of these models and those inside them, in the form in which FastAPI writes its own."""
    _, found = models_json_schema(
        [(body, "validation") for body in bodies], ref_template="#/components/schemas/{model}"
    )
    components: dict[str, Any] = jsonable_encoder(
        Components(schemas=found.get("$defs", {})), by_alias=True, exclude_none=True
    )
    schemas: dict[str, Any] = components["schemas"]
    return schemas
