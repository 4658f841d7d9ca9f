"""The checks of graphs that need no torch: alone against in a crowd, and the golden sentences that servers replay.

Each check returns what it found, for `bundle.json`, and raises `VerificationError` below its bar. `export.torch_parity`
compares with torch, and `export.quality` by BLEU. What is written to disk is left to `dragoman.export.exporter`, to
the importers and to `dragoman.export.publish`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from dragoman.export.plain_search import GraphDecoder, Sources, Trace, in_crowds
from dragoman.model.hypothesis import default_limit
from dragoman.service.engine import repetition

CROWD = 64


class VerificationError(Exception):
    """The graphs or the bundle miss a bar; the message says by how much."""


@dataclass(frozen=True)
class ParallelText:
    name: str
    sources: list[str]
    references: list[str]


class Decodes(Protocol):
    """Turns target ids into text."""

    def decode(self, ids: list[int]) -> str: ...


@dataclass(frozen=True)
class GraphTranslator:
    """Translates with the exported graphs, with the limits that the service has by default."""

    decoder: GraphDecoder
    tokenizer: Decodes
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
