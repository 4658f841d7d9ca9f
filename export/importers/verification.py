"""The checks of an import: graphs against a NumPy reference, the exported precision against fp32, alone and in a crowd.

There is no torch here and no test set with references: what a foreign network should answer is what its own arrays
say. Each check returns what it found, for `bundle.json`, and raises `VerificationError` below its bar.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from dragoman.export.importers.reference import ReferenceNetwork
from dragoman.export.network import Network
from dragoman.export.plain_search import Sources
from dragoman.export.verify import GraphTranslator, VerificationError, verify_invariance
from dragoman.service.bundles.manifest import SpecialIds

TIE = 1e-3  # log-probabilities this close may be ordered either way by rounding
MIN_CHRF = 80.0  # of the exported graphs' answers against those of fp32
_LONGEST_NGRAM, _BETA = 6, 2


def verify_import(
    network: Network,
    special_ids: SpecialIds,
    fp32: GraphTranslator,
    exported: GraphTranslator,
    sources: Sources,
    promised: bool,
    announce: Callable[[str], None],
) -> dict[str, Any]:
    """`promised`: whether a row gets the same bits in any company, as int8 does."""
    announce("graphs against the reference")
    reference = verify_reference(network, special_ids, fp32, sources)
    announce("exported precision against fp32")
    precision = verify_precision(fp32.texts(sources), exported.texts(sources))
    announce("alone against in a crowd")
    invariance = verify_invariance(exported, sources, promised)
    return {"reference": reference, "precision": precision, "invariance": invariance}


def verify_reference(
    network: Network, special_ids: SpecialIds, fp32: GraphTranslator, sources: Sources
) -> dict[str, Any]:
    """The fp32 graphs and NumPy choose the same tokens; only where NumPy sees a tie may they differ."""
    reference, ties = ReferenceNetwork(network), 0
    traces, limits = fp32.greedy(sources), fp32.limits(sources)
    for source, trace, limit in zip(sources, traces, limits, strict=True):
        wanted = reference.greedy(source, limit, special_ids.bos, special_ids.eos)
        if trace.ids == wanted.ids:
            continue
        at = next(i for i, (a, b) in enumerate(zip([*trace.ids, -1], [*wanted.ids, -1], strict=False)) if a != b)
        gap = wanted.gaps[min(at, len(wanted.gaps) - 1)]
        if gap > TIE:
            raise VerificationError(
                f"the graphs and the reference translate the source {list(source)} differently ({trace.ids} against "
                f"{wanted.ids}), and not by a tie: they are {gap:.2g} apart"
            )
        ties += 1
    return {"sentences": len(sources), "different": 0, "ties": ties}


def verify_precision(wanted: Sequence[str], found: Sequence[str]) -> dict[str, Any]:
    """How far rounding moves the answers away from those of fp32."""
    same, score = sum(a == b for a, b in zip(wanted, found, strict=True)), chrf(found, wanted)
    if score < MIN_CHRF:
        raise VerificationError(f"the exported graphs have chrF {score} against fp32, where {MIN_CHRF} is the least")
    return {"sentences": len(wanted), "same": same, "chrf": score}


def chrf(found: Sequence[str], wanted: Sequence[str]) -> float:
    """chrF over all sentences together: the mean F-score of n-grams of 1 to 6 characters, without blanks."""
    scores = []
    for n in range(1, _LONGEST_NGRAM + 1):
        common = total_found = total_wanted = 0
        for ours, theirs in zip(found, wanted, strict=True):
            a, b = _ngrams(ours, n), _ngrams(theirs, n)
            common += (a & b).total()
            total_found, total_wanted = total_found + a.total(), total_wanted + b.total()
        if total_found and total_wanted:
            precision, recall, weight = common / total_found, common / total_wanted, _BETA**2
            scores.append((1 + weight) * precision * recall / (weight * precision + recall) if common else 0.0)
    return round(100 * sum(scores) / len(scores), 1) if scores else 100.0


def _ngrams(text: str, n: int) -> Counter[str]:
    joined = "".join(text.split())
    return Counter(joined[i : i + n] for i in range(len(joined) - n + 1))
