"""Other translations of a whole text, from those of its segments, for the API that returns whole texts."""

from service.translation.contract import Segment, Translation


def alternatives_of(translation: Translation, count: int) -> list[str]:
    """The texts with every segment's second choice, third choice, …; a segment that has no such choice keeps its best.

    What stands between the segments (spaces, line breaks) stays. A choice that changes nothing is left out.
    """
    texts = [_with_choice(translation, rank) for rank in range(1, count + 1)]
    return [text for text in dict.fromkeys(texts) if text != translation.text]


def _with_choice(translation: Translation, rank: int) -> str:
    parts, position = [], 0
    for segment in translation.segments:
        start = translation.text.find(segment.text, position)
        if start < 0:  # cannot be told where it stands: leave it
            continue
        parts += [translation.text[position:start], _choice(segment, rank)]
        position = start + len(segment.text)
    return "".join(parts) + translation.text[position:]


def _choice(segment: Segment, rank: int) -> str:
    return segment.alternatives[rank].text if rank < len(segment.alternatives) else segment.text
