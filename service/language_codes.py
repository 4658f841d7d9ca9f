"""Language codes: the language of a code with a region, and which of the codes at hand is meant by another one."""

from collections.abc import Collection

_SCRIPT_LETTERS = 4  # `Latn`, `Hans`; regions have two letters or three digits


def base_language(code: str) -> str:
    """The language without its region, in lower case: `pt` for `pt-BR`."""
    return code.partition("-")[0].lower()


def closest(code: str, codes: Collection[str]) -> str | None:
    """Which of the codes is meant: the code itself, its language (`pt` for `pt-BR`), or another region of it (`pt-BR`
    for `pt-PT`, the first by name), but never another script. None if there is none."""
    by_small = {each.lower(): each for each in codes}
    found = by_small.get(code.lower()) or by_small.get(base_language(code))
    if found is not None:
        return found
    near = [small for small in by_small if base_language(small) == base_language(code)]
    alike = [small for small in near if not _script(code) or _script(small) in ("", _script(code))]
    return by_small[min(alike)] if alike else None


def _script(code: str) -> str:
    """In small letters; empty if the code has none."""
    parts = code.lower().split("-")[1:]
    return next((part for part in parts if len(part) == _SCRIPT_LETTERS and part.isalpha()), "")
