"""What stands between two translated segments: what stood between their sources, but spaces as the target has them.

`今天。明天。` has nothing between its sentences, and `Today. Tomorrow.` has a space. It is added or left out only
where the script changes at that very place, so text that was copied joins back as it was.
"""

import re
from collections.abc import Sequence

from dragoman.service.translation.markup import is_block
from dragoman.service.translation.segments import SourceSegment, separators
from dragoman.service.translation.writing import is_wide, spaces_sentences

_INLINE_TAGS = re.compile(r"((?:</[^<>]++>)*+)((?:<[^/<>][^<>]*+>)*+)")
_TAG = re.compile(r"<[^<>]++>")


class Joints:
    """The separators of one text in its translation."""

    def __init__(self, text: str, segments: Sequence[SourceSegment], target: str) -> None:
        self._between, self._target = separators(text, segments), target
        self._ends = [text[segment.end - 1] for segment in segments]

    @property
    def last(self) -> str:
        """What stands after the last segment."""
        return self._between[-1]

    def before(self, index: int, previous: str, following: str) -> str:
        """What stands before a segment, given the translations around that place, or the edges of them."""
        if index == 0:
            return self._between[0]
        return joint(self._ends[index - 1], self._between[index], previous, following, self._target)

    def all(self, translations: Sequence[str]) -> list[str]:
        around = zip(["", *translations], translations, strict=False)
        return [*[self.before(index, *pair) for index, pair in enumerate(around)], self.last]


def joint(source_end: str, separator: str, previous: str, following: str, target: str) -> str:
    """`separator` as the target writes it. `source_end` is the last character of the source before it."""
    if not previous or not following or is_wide(source_end) == is_wide(previous[-1]):
        return separator
    if separator == " ":
        return separator if spaces_sentences(target) or not is_wide(previous[-1]) else ""
    if is_wide(previous[-1]) or is_wide(following[0]) or previous[-1].isspace() or not spaces_sentences(target):
        return separator
    tags = _INLINE_TAGS.fullmatch(separator)
    if tags is None or any(map(is_block, _TAG.findall(separator))):
        return separator
    return f"{tags[1]} {tags[2]}"
