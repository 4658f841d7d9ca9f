"""Torch against ONNX Runtime: the fp32 graphs of a trained network choose the tokens that torch chooses."""

from collections.abc import Sequence
from typing import Any

import torch

from dragoman.export.plain_search import Sources, in_crowds
from dragoman.export.verify import CROWD, GraphTranslator, VerificationError
from dragoman.model.evaluate import beam, greedy
from dragoman.model.hypothesis import Hypothesis
from dragoman.model.tokenizer import BOS_ID
from dragoman.model.transformer import Transformer

TIE = 1e-4  # a difference between first and second choice that rounding may decide either way
BEAM = 4


def verify_parity(network: Transformer, translator: GraphTranslator, sources: Sources) -> dict[str, Any]:
    """The fp32 graphs and torch choose the same tokens, greedy and beam; only a tie in torch may differ."""
    ties = [gap for size in (1, BEAM) for gap in _ties(network, translator, sources, size)]
    return {
        "sentences": len(sources),
        "beam_sizes": [1, BEAM],
        "different": 0,
        "ties": len(ties),
        "largest_tie": max(ties, default=0.0),
    }


def _ties(network: Transformer, translator: GraphTranslator, sources: Sources, beam_size: int) -> list[float]:
    """The gaps of the sentences that came out differently; raises where a gap is more than a tie."""
    theirs, gaps = _torch_best(network, sources, translator.limits(sources), beam_size), []
    for source, (mine, closest), other in zip(sources, _best(translator, sources, beam_size), theirs, strict=True):
        if mine.ids != other.ids or mine.finished != other.finished:
            # Greedy: the gap that torch sees at the first token that differs. In a beam any candidate may decide.
            gap = _first_gap(network, source, mine.ids, other.ids) if beam_size == 1 else closest
            if gap > TIE:
                raise VerificationError(
                    f"with beam {beam_size}, ONNX Runtime and torch translate the source {list(source)} differently "
                    f"({mine.ids} against {other.ids}), and not by a tie: they are {gap:.2g} apart"
                )
            gaps.append(gap)
    return gaps


def _best(translator: GraphTranslator, sources: Sources, beam_size: int) -> list[tuple[Hypothesis, float]]:
    """The best hypotheses, each with its smallest gap."""
    if beam_size == 1:
        return [(trace.hypothesis(), trace.smallest_gap) for trace in translator.greedy(sources)]
    found = (
        translator.decoder.beam(source, limit, beam_size)
        for source, limit in zip(sources, translator.limits(sources), strict=True)
    )
    return [(beams.hypotheses[0], beams.smallest_gap) for beams in found]


def _torch_best(network: Transformer, sources: Sources, limits: list[int], beam_size: int) -> list[Hypothesis]:
    if beam_size > 1:
        return [hypotheses[0] for hypotheses in beam(network, sources, limits, beam_size)]
    found: dict[int, Hypothesis] = {}
    for crowd in in_crowds(sources, CROWD):
        batch, of_batch = [sources[i] for i in crowd], [limits[i] for i in crowd]
        found |= zip(crowd, greedy(network, batch, of_batch), strict=True)
    return [found[i] for i in range(len(sources))]


@torch.inference_mode()
def _first_gap(network: Transformer, source: Sequence[int], ours: list[int], theirs: list[int]) -> float:
    """The gap that torch sees between its two best tokens, where the two translations first differ."""
    ours, theirs = [*ours, -1], [*theirs, -1]
    at = next(i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b)
    memory = network.encode(torch.tensor([list(source)]), None)
    hidden = network.decode(torch.tensor([[BOS_ID, *theirs[:at]]]), memory, None)[:, -1]
    best = network.logits(hidden).log_softmax(-1)[0].topk(2).values  # [2]
    return float(best[0] - best[1])
