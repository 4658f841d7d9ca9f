"""The ways to translate a unit, the best first: what is tried next when a translation has lost a span.

`plan.py` makes the units; `decode.py` decodes one attempt after the other until one has kept everything.
"""

import re
from collections.abc import Callable, Iterator, Sequence

from dragoman.service.translation.spans import Chunk, Span
from dragoman.service.translation.tag_places import is_tag, without_tags
from dragoman.service.translation.unit import Plan, Unit

# Marks at the edges of a piece belong to what stands beside it, and a model makes words of them. The mark that ends a
# sentence stays: it is part of what the sentence says.
_FRONT = re.compile(r"[\W_]*+")
_BACK = re.compile(r"[\s,;:(\[{\"'“‘«‹/–—，、；：（［｛「『《〈【〔،؛-]*+")  # of the text from its end

_BEAM_SIZE_AGAIN = 4  # of the attempt that looks for a hypothesis with all spans


class Attempts:
    """`make_unit` is the planner's. With `places_tags` the bundle can be asked for the attention of a translation."""

    def __init__(self, make_unit: Callable[[tuple[Chunk, ...]], Unit], max_beam_size: int, places_tags: bool) -> None:
        self._make_unit, self._places_tags = make_unit, places_tags
        self._beam_size_again = min(_BEAM_SIZE_AGAIN, max_beam_size)

    def of(self, unit: Unit, beam_size: int, prefix: str | None = None) -> Iterator[Plan]:
        """Ways to translate a unit, the best first. Each is planned only when all before it have lost a span.

        1. Without its tags: the model's attention puts them back.
        2. With a placeholder for each span, or with the spans as text.
        3. The same with a beam, if the request asks for a narrower one: another hypothesis may have kept all spans.
        4. In pieces: only the text between the spans is decoded, so no span can be lost.

        `beam_size` is the request's, and `prefix` is what the translation must begin with.
        """
        quotes_tag = prefix is not None and any(is_tag(span) and span.text in prefix for span in unit.spans)
        bare = self._without_tags(unit) if self._places_tags and not quotes_tag else None
        if bare is not None:
            yield (bare,)
        yield (unit,)
        if beam_size < self._beam_size_again:
            yield (unit._replace(beam_size=self._beam_size_again),)
        yield self.pieces(unit.chunks)

    def pieces(self, chunks: Sequence[Chunk]) -> Plan:
        """Only the text between the spans goes to the model."""
        plan: list[Chunk | Unit] = []
        for chunk in chunks:
            if isinstance(chunk, Span) or not has_letter(chunk):
                plan.append(chunk)
                continue
            before, words, after = _edges(chunk)
            plan += [before, self._make_unit((words,)), after]
        return tuple([part for part in plan if part != ""])

    def _without_tags(self, unit: Unit) -> Unit | None:
        """The unit as if it had no tags; None if it has none, or nothing else."""
        if unit.as_text or not any(map(is_tag, unit.spans)):
            return None
        chunks = without_tags(unit.chunks)
        return self._make_unit(chunks)._replace(tagged=unit.chunks) if has_words(chunks) else None


def _edges(text: str) -> tuple[str, str, str]:
    """The marks before the words, the words, and the marks after them; each end is read once."""
    start, length = _length(_FRONT, text), _length(_BACK, text[::-1])
    end = max(start, len(text) - length)
    return text[:start], text[start:end], text[end:]


def _length(marks: re.Pattern[str], text: str) -> int:
    found = marks.match(text)
    return found.end() if found else 0


def has_words(chunks: Sequence[Chunk]) -> bool:
    return any(isinstance(chunk, str) and has_letter(chunk) for chunk in chunks)


def has_letter(text: str) -> bool:
    return any(map(str.isalpha, text))
