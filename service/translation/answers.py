"""Read what a model answered: tokens become text, and spans and tags go back to their places.

`plan.py` says what the model read. `decode.py` calls these functions when the tokens are there.
"""

import re
from collections.abc import Sequence

from dragoman.service.catalog.served import Tokenizer
from dragoman.service.translation.capitals import shouted
from dragoman.service.translation.placeholders import all_kept, put_back
from dragoman.service.translation.spans import Chunk, Span
from dragoman.service.translation.tag_places import Floats, Reach, place_tags, tags_in_order, visible
from dragoman.service.translation.tokenizer import UNKNOWN
from dragoman.service.translation.unit import Unit


def read_answer(tokenizer: Tokenizer, unit: Unit, ids: Sequence[int]) -> tuple[tuple[Chunk, ...], bool]:
    """The translation as text and spans, and whether every span is there exactly once."""
    chunks: tuple[Chunk, ...]
    kept = True
    if not unit.spans:
        text = tokenizer.decode(ids)
        chunks = (text,) if text else ()
    elif unit.as_text:
        chunks, kept = _find_spans(tokenizer.decode(ids), unit.spans)
    else:
        parts = tokenizer.decode_parts(ids)
        chunks = put_back(parts, unit.chunks)
        kept = all_kept(parts, len(unit.spans)) and tags_in_order(unit.chunks, chunks)
    return (shouted(chunks) if unit.shouted else chunks), kept


def put_tags_back(
    tokenizer: Tokenizer, unit: Unit, ids: Sequence[int], chunks: Sequence[Chunk], attention: Floats
) -> tuple[Chunk, ...] | None:
    """A translation that was made without tags, with them; None if one of them has no place.

    `attention` is [target tokens, source tokens].
    """
    reach = Reach(_reach(tokenizer, unit, unit.source_ids), _reach(tokenizer, unit, ids))
    return place_tags(unit.tagged, chunks, reach, attention)


def token_text(tokenizer: Tokenizer, unit: Unit, token_id: int) -> str:
    """How a token looks in a list of tokens: a placeholder is shown as what it stands for."""
    match tokenizer.decode_parts([token_id]) if unit.spans else []:
        case [int(number)] if number < len(unit.spans):
            return unit.spans[number].text
    return tokenizer.token_text(token_id)


def source_token_text(tokenizer: Tokenizer, unit: Unit, token_id: int) -> str:
    """How a source token looks in a list of tokens: a placeholder as what it stands for."""
    token = tokenizer.source_token(token_id)
    return unit.spans[token].text if isinstance(token, int) else token


def _reach(tokenizer: Tokenizer, unit: Unit, ids: Sequence[int]) -> list[int]:
    """For each token of a source or a translation, how many characters come up to its end, blanks not counted."""
    reached: list[int] = []
    for place, token_id in enumerate(ids):
        text = _text_of(tokenizer, unit, [token_id])
        if UNKNOWN in text:  # perhaps one byte of a character: read it together with the tokens before
            reached.append(visible(_text_of(tokenizer, unit, ids[: place + 1])))
        else:
            reached.append((reached[-1] if reached else 0) + visible(text))
    return reached


def _text_of(tokenizer: Tokenizer, unit: Unit, ids: Sequence[int]) -> str:
    parts = tokenizer.decode_parts(ids)
    return "".join([unit.spans[part].text if isinstance(part, int) else part for part in parts])


def _find_spans(text: str, spans: Sequence[Span]) -> tuple[tuple[Chunk, ...], bool]:
    """Spans that went as text, found again in the translation; equal ones in the order of the source."""
    waiting: dict[str, list[Span]] = {}
    for span in spans:
        waiting.setdefault(span.text, []).append(span)
    longest_first = sorted((span_text for span_text in waiting if span_text), key=len, reverse=True)
    chunks: list[Chunk] = []
    for part in re.split("(" + "|".join(map(re.escape, longest_first)) + ")", text) if longest_first else [text]:
        found = waiting.get(part)
        chunks.append(found.pop(0) if found else part)
    kept = not any(waiting.values()) and not any(isinstance(chunk, str) and chunk in waiting for chunk in chunks)
    return tuple(chunk for chunk in chunks if chunk != ""), kept
