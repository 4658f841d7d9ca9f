"""Options of a command line that take several words: `--verify SRC REF`, or `--only NAME NAME …`.

typer knows options of one word, which may be repeated. The words are rewritten to that form before typer reads them:
`--verify SRC REF` becomes `--verify SRC --verify REF`. The command groups the values again.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

T = TypeVar("T")


def repeat_options(arguments: Sequence[str] | None, counts: Mapping[str, int | None]) -> list[str]:
    """`counts` says how many words each option takes; None: all that follow, at least one. Exits with 2 otherwise."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    return list(_rewritten(words, counts))


def _rewritten(words: Sequence[str], counts: Mapping[str, int | None]) -> Iterator[str]:
    place = 0
    while place < len(words):
        option, place = words[place], place + 1
        if option == "--":
            yield from words[place - 1 :]
            return
        if option not in counts:
            yield option
            continue
        values = _values(words[place:], counts[option])
        _check_count(option, values, counts[option])
        place += len(values)
        yield from (word for value in values for word in (option, value))


def _values(words: Sequence[str], count: int | None) -> list[str]:
    """The words up to the next option, at most `count`."""
    values: list[str] = []
    for word in words[:count]:
        if word.startswith("-") and word != "-":
            break
        values.append(word)
    return values


def _check_count(option: str, values: Sequence[str], count: int | None) -> None:
    if not values or (count is not None and len(values) < count):
        needed = "at least one value" if count is None else f"{count} values"
        print(f"{option} takes {needed}, and {len(values)} follow it.", file=sys.stderr)
        sys.exit(2)


def grouped(values: Sequence[T], count: int) -> list[tuple[T, ...]]:
    """The values of an option of `count` words, one tuple for each time it was given."""
    return [tuple(values[start : start + count]) for start in range(0, len(values), count)]
