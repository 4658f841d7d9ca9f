"""Reads a request of a foreign API: JSON, a form (urlencoded or multipart) or the query, as one set of fields.

Those APIs grew over years and take all three, also as the body of a GET. A field may be repeated. Nothing is replaced
or dropped: bytes that are not UTF-8 are refused.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

import orjson
from pydantic import ValidationError
from starlette.datastructures import FormData

from dragoman.service.api.dialects.native_schemas import Options
from dragoman.service.api.sentences import describe
from dragoman.service.errors import BadRequest, InvalidRequest
from dragoman.service.translation.contract import TranslationOptions

MAX_FIELDS = 20_000  # the limit of the body's size would still allow millions of empty ones


@dataclass(frozen=True)
class Fields:
    """Every field with all its values, as sent: strings from forms and queries, anything from JSON."""

    values: Mapping[str, list[Any]]
    from_form: bool
    lists: frozenset[str] = frozenset()  # fields that were a list in JSON, also a list of one

    def is_list(self, name: str) -> bool:
        return name in self.lists or len(self.values.get(name, ())) > 1

    def texts(self, name: str) -> list[str] | None:
        """All values of a field that may be repeated, or None where it is missing."""
        values = self.values.get(name)
        if values is None:
            return None
        if not all(isinstance(value, str) for value in values):
            raise BadRequest(f"{name} must be a string or a list of strings.")
        return values

    def text(self, name: str) -> str | None:
        """The last value of a field; null and missing are the same."""
        values = [value for value in self.values.get(name, []) if value is not None]
        if not values:
            return None
        if not isinstance(values[-1], str | int | float):
            raise BadRequest(f"{name} must be a single value.")
        return str(values[-1]).lower() if isinstance(values[-1], bool) else str(values[-1])

    def number(self, name: str, default: int = 0) -> int:
        value = self.text(name)
        if value is None or value == "":
            return default
        if not value.isdecimal() or len(value) > 9:
            raise BadRequest(f"{name} must be a whole number, 0 or more.")
        return int(value)

    def options(self, **fixed: Any) -> TranslationOptions:
        """Our own decoding options, under their native names; `fixed` ones are decided by the endpoint."""
        given = {name: self.values[name][-1] for name in Options.model_fields if self.values.get(name)}
        if isinstance(given.get("glossary"), str):
            given["glossary"] = parse_json(given["glossary"].encode(), "glossary")
        try:
            # The answers of these APIs cannot say that a translation is only a part of one.
            return Options(**{**given, **fixed}).options()._replace(whole=True)
        except ValidationError as error:
            raise InvalidRequest(describe(error)) from None


def parse_fields(content_type: str, query: bytes, body: bytes, form: FormData | None) -> Fields:
    """The query's fields, and over them the body's; `form` is a multipart body that has been read."""
    values = _urlencoded(query)
    if form is not None:
        return Fields(values | {name: list(form.getlist(name)) for name in form}, from_form=True)
    if content_type.endswith("json") or body.lstrip()[:1] == b"{":
        return _from_json(values, body)
    return Fields(values | _urlencoded(body), from_form=True)


def parse_json(data: bytes, what: str) -> Any:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        if "surrogate" in str(error):
            raise BadRequest(f"The {what} has half of a surrogate pair; send whole characters.") from None
        raise BadRequest(f"The {what} is not JSON.") from None


def _from_json(values: dict[str, list[Any]], body: bytes) -> Fields:
    content = parse_json(body or b"{}", "body")
    if not isinstance(content, dict):
        raise BadRequest("The body must be a JSON object.")
    lists = frozenset(name for name, value in content.items() if isinstance(value, list))
    sent = {name: value if name in lists else [value] for name, value in content.items()}
    return Fields(values | sent, from_form=False, lists=lists)


def _urlencoded(data: bytes) -> dict[str, list[Any]]:
    values: dict[str, list[Any]] = {}
    try:
        pairs = parse_qsl(data.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=MAX_FIELDS)
    except UnicodeError:
        raise BadRequest("The form must be UTF-8 with percent signs; encode it again.") from None
    except ValueError:
        raise BadRequest(f"The form has too many fields; at most {MAX_FIELDS} are read.") from None
    for name, value in pairs:
        values.setdefault(name, []).append(value)
    return values
