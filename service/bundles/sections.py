"""One JSON object of a manifest, read field by field with the types that the format expects."""

from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Any, NoReturn, TypeVar, cast

T = TypeVar("T")


class Section:
    def __init__(self, record: object, name: str, fail: Callable[[str], NoReturn]) -> None:
        """`fail` raises the error of whoever reads; it is given the end of a sentence that begins with the bundle."""
        if not isinstance(record, dict):
            fail(f"has a {name} that is not a JSON object: export it again")
        self.record, self.name, self.fail = cast(dict[str, Any], record), name, fail

    def get(self, key: str, kind: type[T]) -> T:
        value = self.record.get(key)
        if kind is float and type(value) is int:
            value = float(value)
        # isinstance would take true for a number; a manifest that says so is wrong
        if type(value) is not kind:
            self.fail(f"has no usable {key!r} in its {self.name} (expected {kind.__name__}): export it again")
        return value

    def optional(self, key: str, kind: type[T]) -> T | None:
        """None where the field is missing or null."""
        return None if self.record.get(key) is None else self.get(key, kind)

    def one_of(self, key: str, *choices: str) -> Any:
        value = self.get(key, str)
        if value not in choices:
            self.fail(f"has the unknown {key} {value!r} in its {self.name}: upgrade the server")
        return value

    def section(self, key: str) -> "Section":
        return Section(self.get(key, dict), key, self.fail)

    def sections(self, key: str) -> "list[Section]":
        return [Section(item, key, self.fail) for item in self.get(key, list)]

    def integers(self, key: str) -> tuple[int, ...]:
        values = self.get(key, list)
        if any(type(value) is not int for value in values):
            self.fail(f"has something other than integers in {key!r} of its {self.name}: export it again")
        return tuple(values)

    def positive(self, key: str) -> int:
        value = self.get(key, int)
        if value < 1:
            self.fail(f"has {value} for {key!r} in its {self.name}, where at least 1 is needed: export it again")
        return value

    def flat(self, cls: type[T]) -> T:
        """A dataclass of plain fields only; a field with a default may be missing."""
        known = [each for each in fields(cast(Any, cls)) if each.default is MISSING or each.name in self.record]
        return cls(**{each.name: self.get(each.name, cast(type, each.type)) for each in known})
