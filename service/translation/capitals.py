"""Text that is all in capitals ("shouted"): the model reads it in lower case, and its translation gets capitals.

A tokenizer has whole words in lower case but spells capitals letter by letter, which no model has learned to read. A
short word alone may be an abbreviation (EUA, S.O.S.) and stays. This file says what is shouted and how it is read;
`plan.py` and `answers.py` use it.
"""

import re
from collections.abc import Sequence

from dragoman.service.language_codes import base_language
from dragoman.service.translation.spans import Chunk
from dragoman.service.translation.writing import knows_case

_FEWEST_LETTERS, _FEWEST_LETTERS_ALONE = 3, 4  # of the longest word
_FIRST_LETTER = re.compile(r"[^\W\d_]")
_ENGLISH_I = re.compile(r"\bi\b")


def is_shouted(chunks: Sequence[Chunk], language: str) -> bool:
    text = " ".join([chunk for chunk in chunks if isinstance(chunk, str)])
    if not text.isupper() or len(text.lower().encode()) != len(text.encode()):  # the planner relies on equal lengths
        return False
    if not knows_case(language) or any(map(_has_no_case, text)):  # API 文档 is not shouted
        return False
    longest = max(map(len, words := re.findall(r"[^\W\d_]+", text)), default=0)  # Ⓐ is a capital but no letter
    return longest >= (_FEWEST_LETTERS if len(words) > 1 else _FEWEST_LETTERS_ALONE)


def _has_no_case(character: str) -> bool:
    return character > "\u02ff" and character.isalpha() and character.upper() == character.lower()


def spoken(chunks: Sequence[Chunk], language: str) -> list[Chunk]:
    """The same in lower case, except for the first letter."""
    lowered = [_small(chunk, language) if isinstance(chunk, str) else chunk for chunk in chunks]
    for index, chunk in enumerate(lowered):
        if isinstance(chunk, str) and (first := _FIRST_LETTER.search(chunk)):
            lowered[index] = chunk[: first.start()] + first.group().upper() + chunk[first.end() :]
            break
    return lowered


def shouted(chunks: Sequence[Chunk]) -> tuple[Chunk, ...]:
    return tuple([chunk.upper() if isinstance(chunk, str) else chunk for chunk in chunks])


def _small(text: str, language: str) -> str:
    small = text.lower()
    return _ENGLISH_I.sub("I", small) if base_language(language) == "en" else small
