"""Other translations of a whole text, made from the alternatives of its segments."""

from collections.abc import Iterator, Sequence

from dragoman.service.translation.contract import Segment, Translation
from dragoman.service.translation.segments import join


def variants(translation: Translation) -> Iterator[tuple[str, float]]:
    """Whole texts with their scores, best first: the nth joins the nth choice of each segment, or its last choice."""
    choices = [
        [(segment.text, segment.score), *((other.text, other.score) for other in segment.alternatives)]
        for segment in translation.segments
    ]
    for place in range(max(map(len, choices), default=1)):
        chosen = [of_segment[min(place, len(of_segment) - 1)] for of_segment in choices]
        text = join(translation.separators, [text for text, _ in chosen])
        yield text, _score(translation, [score for _, score in chosen])


def _score(translation: Translation, scores: Sequence[float]) -> float:
    """The mean, weighted by tokens."""
    segments: Sequence[Segment] = translation.segments
    num_tokens = sum(segment.num_tokens for segment in segments)
    weighted = sum(score * segment.num_tokens for score, segment in zip(scores, segments, strict=True))
    return weighted / num_tokens if num_tokens else 0.0
