"""A unit: what one decode reads. A plan is units, and what stands between them in the translation as it is."""

from typing import NamedTuple

from dragoman.service.translation.spans import Chunk, Span


class Unit(NamedTuple):
    """What one decode of one hop reads, and what its answer must hold."""

    chunks: tuple[Chunk, ...]
    spans: tuple[Span, ...]  # among the chunks
    source_ids: tuple[int, ...]
    as_text: bool  # spans go as text, because the bundle has no placeholders
    shouted: bool = False  # all in capitals, which no model reads well: it reads lower case instead
    tagged: tuple[Chunk, ...] = ()  # the chunks with their tags, if the model reads them without
    beam_size: int | None = None  # instead of the request's


# How to translate a segment: units, and between them text and spans that go into the translation as they are.
Plan = tuple[Chunk | Unit, ...]


def units_of(plan: Plan) -> list[Unit]:
    return [part for part in plan if isinstance(part, Unit)]


def is_whole(plan: Plan) -> bool:
    """Whether one decode makes all of the translation."""
    return len(plan) == 1 and isinstance(plan[0], Unit)
