"""Says in plain words what pydantic found wrong with a request.

The sentence names fields and never quotes values: a value may be the text to translate.
"""

import re
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

FIELD = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,39}")  # a field's name is repeated to the caller only if it looks like one
MOST_COMPLAINTS = 5


def describe(error: ValidationError) -> str:
    complaints = dict.fromkeys(_complaint(problem) for problem in error.errors(include_url=False))
    return "; ".join(list(complaints)[:MOST_COMPLAINTS]) + "."  # each once: a union complains once per member


def _complaint(problem: Mapping[str, Any]) -> str:
    path = problem["loc"]
    name = str(path[0]) if path and FIELD.fullmatch(str(path[0])) else "a field"
    if problem["type"] == "extra_forbidden":
        return f"{name} is not a field of this request"
    if name == "text" and problem["type"] not in ("missing", "too_short", "too_long"):
        several = len(path) > 1  # behind the field's name: which member of the union complains
        return "text must be a string" + " or a list of strings" * several
    if name in ("source", "target") and problem["type"] != "missing":
        either = ", or auto" if name == "source" else ""
        return f"{name} must be a language code such as pt or pt-BR{either}; /v1/languages lists those that are served"
    if problem["type"] in ("value_error", "assertion_error"):
        return str(problem["msg"]).removeprefix("Value error, ")
    return f"{name}: {str(problem['msg'])[0].lower()}{str(problem['msg'])[1:]}"
