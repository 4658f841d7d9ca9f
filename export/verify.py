"""The checks of an export: torch against ONNX Runtime, int8 against fp32, alone against in a crowd.

Each check returns what it found, for `bundle.json`, and raises `VerificationError` below its bar. What is written to
disk, and what happens to it then, is left to `dragoman.export.exporter` and `dragoman.export.publish`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from dragoman.export.plain_search import GraphDecoder, Sources, Trace, in_crowds
from dragoman.model.evaluate import Hypothesis, beam, default_limit, greedy, score, score_by_length
from dragoman.model.tokenizer import BOS_ID, Tokenizer
from dragoman.model.transformer import Transformer
from dragoman.service.engine import repetition

TIE = 1e-4  # a difference between first and second choice that rounding may decide either way
CROWD = 64
BEAM = 4


class VerificationError(Exception):
    """The graphs or the bundle miss a bar; the message says by how much."""


@dataclass(frozen=True)
class ParallelText:
    name: str
    sources: list[str]
    references: list[str]


@dataclass(frozen=True)
class GraphTranslator:
    """Translates with the exported graphs, with the limits that the service has by default."""

    decoder: GraphDecoder
    tokenizer: Tokenizer
    max_new_tokens: int

    def greedy(self, sources: Sources, k: int = 1) -> list[Trace]:
        traces: dict[int, Trace] = {}
        for crowd in in_crowds(sources, CROWD):
            batch = [sources[i] for i in crowd]
            traces |= zip(crowd, self.decoder.greedy(batch, self.limits(batch), k), strict=True)
        return [traces[i] for i in range(len(sources))]

    def limits(self, sources: Sources) -> list[int]:
        return [default_limit(source, self.max_new_tokens + 1) for source in sources]

    def texts(self, sources: Sources) -> list[str]:
        return [self.tokenizer.decode(trace.hypothesis().ids) for trace in self.greedy(sources)]


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


def verify_invariance(translator: GraphTranslator, sources: Sources, promised: bool) -> dict[str, Any]:
    """Tokens and scores are equal bit for bit: alone by single steps, alone by multi-steps, and in mixed crowds."""
    together: list[Trace] = []
    for start in range(0, len(sources), CROWD):  # in the given order, so that lengths mix
        batch = sources[start : start + CROWD]
        together += translator.decoder.greedy(batch, translator.limits(batch), k=1)
    rows = different = 0
    for source, crowded in zip(sources, together, strict=True):
        limits = translator.limits([source])
        alone = translator.decoder.greedy([source], limits, k=2)[0]
        rows += len(alone.ids)
        different += max(_differing(alone, other) for other in (crowded, translator.decoder.alone(source, limits[0])))
    if promised and different:
        raise VerificationError(f"{different} of {rows} rows differ alone and in a crowd of {CROWD}")
    return {"rows": rows, "crowd": CROWD, "different": different, "promised": promised}


def _differing(one: Trace, other: Trace) -> int:
    if one.ids == other.ids and one.log_probs == other.log_probs:
        return 0
    return sum(a != b for a, b in zip(one.log_probs, other.log_probs, strict=False)) or 1


@dataclass(frozen=True)
class GoldenTrace:
    text: str
    source_ids: list[int]
    trace: Trace


def choose_golden(
    translator: GraphTranslator, sentences: Sequence[tuple[str, list[int]]], count: int, gap: float
) -> list[GoldenTrace]:
    """Sentences that every machine must translate alike, because no choice in them is close."""
    traces = translator.greedy([source for _, source in sentences], k=2)
    sure = [
        GoldenTrace(text, source, trace)
        for (text, source), trace in zip(sentences, traces, strict=True)
        if trace.finished and trace.smallest_gap > gap and not _may_be_stopped(trace)
    ]
    return sure[:: max(1, len(sure) // count)][:count]  # from the whole file, where similar sentences stand together


def _may_be_stopped(trace: Trace) -> bool:
    """Whether the repetition guard of a server could have ended it earlier."""
    return repetition.longest_cycle(trace.ids) >= repetition.MIN_TOKENS
