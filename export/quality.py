"""BLEU and chrF of exported graphs beside those of the fp32 graphs, on test sets with references."""

from collections.abc import Sequence
from typing import Any

from dragoman.export.plain_search import Sources
from dragoman.export.verify import GraphTranslator, ParallelText, VerificationError
from dragoman.model.evaluate import score, score_by_length


def verify_quality(
    reference: GraphTranslator,
    candidate: GraphTranslator,
    tests: Sequence[tuple[ParallelText, Sources]],
    max_loss: float,
) -> list[dict[str, Any]]:
    """BLEU and chrF of both on the same test sets, by source length; the candidate may lose `max_loss` of each."""
    found = []
    for test, sources in tests:
        of_reference, of_candidate = reference.texts(sources), candidate.texts(sources)
        before, after = score(of_reference, test.references), score(of_candidate, test.references)
        for measure in ("bleu", "chrf"):
            if before[measure] - after[measure] > max_loss:
                raise VerificationError(
                    f"on {test.name} the exported graphs have {measure} {after[measure]}, against {before[measure]} in "
                    f"fp32: more than {max_loss} lost; calibrate on sentences that are more like these"
                )
        by_length = score_by_length(test.sources, of_candidate, test.references)
        found.append({"test_set": test.name, "fp32": before, "exported": after, "by_length": by_length})
    return found
