"""Which of two versions is newer: numbers are compared as numbers, so that 1.10 is newer than 1.9.

A version is numbers with dots between, perhaps with a `v` before and a pre-release behind a dash (`1.2.0-rc.1`, which
is older than `1.2.0`). Any other version has no order, such as the digits that `dragoman-export` makes of the content:
it is older than every version with numbers, and neither older nor newer than another one without.
"""

import re
from typing import Any

_NUMBERED = re.compile(r"v?(?P<numbers>\d+(\.\d+)*)(-(?P<pre>[0-9A-Za-z.-]+))?(\+[0-9A-Za-z.-]+)?", re.ASCII)
_WITHOUT_ORDER: tuple[Any, ...] = ()


def age_key(version: str) -> tuple[Any, ...]:
    """Larger for newer versions; equal for versions of which none is newer."""
    found = _NUMBERED.fullmatch(version)
    if found is None:
        return _WITHOUT_ORDER
    numbers = [int(number) for number in found["numbers"].split(".")]
    while len(numbers) > 1 and not numbers[-1]:
        numbers.pop()  # 1.0 is 1
    if found["pre"] is None:
        return (tuple(numbers), True)
    return (tuple(numbers), False, tuple(_part_key(part) for part in found["pre"].split(".")))


def _part_key(part: str) -> tuple[int, int, str]:
    """Parts of a pre-release: numbers by their value, and before words."""
    return (0, int(part), "") if part.isdecimal() else (1, 0, part)
