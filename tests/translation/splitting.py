"""A text with its segments, for tests that look at both."""

from typing import Any, NamedTuple

from dragoman.service.translation import segments as splitting
from dragoman.service.translation.segments import SourceSegment


class SplitText(NamedTuple):
    text: str
    segments: tuple[SourceSegment, ...]

    def source(self, index: int) -> str:
        return self.text[self.segments[index].start : self.segments[index].end]

    def separator(self, index: int) -> str:
        return splitting.separators(self.text, self.segments)[index]

    def join(self, translations: list[str]) -> str:
        return splitting.join(splitting.separators(self.text, self.segments), translations)


def split(text: str, *arguments: Any, **options: Any) -> SplitText:
    return SplitText(text, splitting.split(text, *arguments, **options))
