"""Explain one segment of a text: decode it as `translate` does, then let the model show how the result came about.

The tokens come from the serving engine, through its queue; the explain graph only reads them. At most one explanation
is computed at a time and few wait for it, so that explanations do not slow down translations.
"""

import asyncio
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from threading import BoundedSemaphore
from typing import Any

import numpy as np
import numpy.typing as npt

from dragoman.service import errors
from dragoman.service.bundles.manifest import EXPLAIN, Architecture
from dragoman.service.engine.explainer import BeamTree, Explainer
from dragoman.service.engine.job import (
    DecodingOptions,
    DecodingResult,
    EngineFailure,
    EngineStopped,
    FinishReason,
    Hypothesis,
    Job,
    JobRejected,
    QueueFull,
)
from dragoman.service.translation.answers import read_answer, source_token_text, token_text
from dragoman.service.translation.arrival import arrival
from dragoman.service.translation.contract import TranslationOptions
from dragoman.service.translation.decode import refusal
from dragoman.service.translation.explainers import Explainers
from dragoman.service.translation.placeholders import plain_text
from dragoman.service.translation.plan import Planner, TextPlan
from dragoman.service.translation.translator import Translator
from dragoman.service.translation.unit import Unit, units_of

Floats = npt.NDArray[np.float32]

MAX_NUMBERS_TOKENS = 64  # of either side, for the intermediate numbers: every token brings thousands of them
_MAX_WAITING = 8
_CHOICES = ("ids", "logits", "log_probs", "label_log_probs", "log_sum_exp")
_SELF_ATTENTION = ("encoder_attention", "decoder_attention")
_WHOLE_NUMBERS = ("source_embedding", "source_position", "target_embedding", "target_position", "hidden")
_HEAD_NUMBERS = ("query", "key", "value", "scores", "attention", "mixed")


@dataclass(frozen=True)
class NumbersOf:
    """Which of the network's intermediate numbers are wanted."""

    encoder_layer: int = 0
    decoder_layer: int = 0
    head: int = 0


@dataclass(frozen=True)
class ExplainOptions:
    segment: int = 0
    beam_size: int | None = None  # what the bundle recommends
    runners_up: int = 5
    self_attention: bool = False
    numbers: NumbersOf | None = None


@dataclass(frozen=True)
class TokenChoice:
    token_id: int
    text: str
    log_prob: float
    logit: float


@dataclass(frozen=True)
class ExplainedToken:
    """A generated token; `log_prob` is the decoder's, the choices are the explain graph's, most likely first."""

    token_id: int
    text: str
    log_prob: float
    log_sum_exp: float
    choices: tuple[TokenChoice, ...]


@dataclass(frozen=True)
class Explained:
    source_language: str
    segment: int
    num_segments: int
    source: str
    text: str
    finish_reason: FinishReason
    retried: bool  # this decode lost placeholders, so `translate` tries again in another way
    source_tokens: tuple[tuple[int, str], ...]
    target_tokens: tuple[ExplainedToken, ...]
    cross_attention: Floats  # [layers, heads, T, S]
    encoder_attention: Floats | None  # [layers, heads, S, S]
    decoder_attention: Floats | None  # [layers, heads, T, T]
    tree: BeamTree | None
    tree_texts: tuple[str, ...]  # of the tree's nodes
    alternatives: tuple[tuple[str, float], ...]  # the n-best list: text and score
    numbers: Mapping[str, Floats] | None
    largest_difference: float  # between the decoder's log-probabilities and the explain graph's
    same_choices: bool  # greedy: the explain graph has the same most likely tokens
    architecture: Architecture
    model_name: str
    model_version: str
    precision: str
    decode_seconds: float
    explain_seconds: float


@dataclass(frozen=True)
class _Decoded:
    """A segment's unit and what the engine made of it."""

    planner: Planner
    unit: Unit
    result: DecodingResult
    best: Hypothesis
    kept: bool

    @property
    def target_ids(self) -> tuple[int, ...]:
        """All generated tokens, the end of sentence too if there was one."""
        eos_id = self.planner.hop.served.bundle.special_ids.eos
        return (*self.best.ids, eos_id) if self.best.finished else self.best.ids

    def text(self, token_id: int) -> str:
        return token_text(self.planner.tokenizer, self.unit, token_id)

    def source_text(self, token_id: int) -> str:
        return source_token_text(self.planner.tokenizer, self.unit, token_id)

    def read(self, hypothesis: Hypothesis) -> str:
        return plain_text(read_answer(self.planner.tokenizer, self.unit, hypothesis.ids)[0])


class Explanations:
    def __init__(
        self,
        translator: Translator,
        explainers: Explainers,
        timeout_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._translator, self._explainers, self._clock = translator, explainers, clock
        self._timeout_seconds = timeout_seconds
        self._places = BoundedSemaphore(_MAX_WAITING)

    async def explain(
        self, text: str, source: str, target: str, options: ExplainOptions, tenant: str = ""
    ) -> Explained:
        translation = TranslationOptions(beam_size=options.beam_size, n_best=options.beam_size or 1)
        with await self._translator.begin([text], source, target, translation, tenant) as request:
            planned = request.texts[0]
            planner, unit = _find(planned, options)
            decoded = _choose(planner, unit, await self._decode(planner, unit, options))
            return await self._in_turn(planned, decoded, options)

    async def _decode(self, planner: Planner, unit: Unit, options: ExplainOptions) -> DecodingResult:
        beam_size = _beam_size(options, planner)
        decoding = DecodingOptions(beam_size=beam_size, n_best=beam_size, log_probs=True)
        job = Job(unit.source_ids, decoding, deadline_at=self._clock() + self._timeout_seconds)
        try:
            return await arrival(planner.hop.served.engine.submit(job))
        except (QueueFull, JobRejected, EngineStopped, EngineFailure) as error:
            raise refusal(error) from error

    async def _in_turn(self, planned: TextPlan, decoded: _Decoded, options: ExplainOptions) -> Explained:
        if not self._places.acquire(blocking=False):
            raise errors.QueueFull("The server is busy with other explanations; try again in a moment.", 1.0)
        served = decoded.planner.hop.served
        work = self._explainers.submit(served, functools.partial(self._explain, planned, decoded, options))
        work.add_done_callback(lambda _: self._places.release())
        return await asyncio.wrap_future(work)

    def _explain(
        self, planned: TextPlan, decoded: _Decoded, options: ExplainOptions, explainer: Explainer
    ) -> Explained:
        """On a thread: run the graph, grow the tree, and describe both."""
        started_at = self._clock()
        served = decoded.planner.hop.served
        source_ids, target_ids = decoded.unit.source_ids, decoded.target_ids
        k = min(options.runners_up + 1, served.bundle.architecture.vocab_size)
        arrays = explainer.explain(source_ids, target_ids, k, _wanted(options, served.bundle.architecture))
        beam_size = _beam_size(options, decoded.planner)
        tree = explainer.beam_tree(source_ids, DecodingOptions(beam_size=beam_size)) if beam_size > 1 else None
        greedy = arrays["ids"][:, 0].tolist() == list(target_ids)
        gaps = np.abs(arrays["label_log_probs"][:, 0] - np.array(decoded.best.log_probs[: len(target_ids)]))
        return Explained(
            source_language=planned.language,
            segment=options.segment,
            num_segments=len(planned.segments),
            source=planned.source(options.segment),
            text=decoded.read(decoded.best),
            finish_reason=decoded.result.finish_reason,
            retried=not decoded.kept,
            source_tokens=tuple((token_id, decoded.source_text(token_id)) for token_id in source_ids),
            target_tokens=tuple(_tokens(decoded, arrays)),
            cross_attention=arrays["cross_attention"],
            encoder_attention=arrays.get("encoder_attention") if options.self_attention else None,
            decoder_attention=arrays.get("decoder_attention") if options.self_attention else None,
            tree=tree,
            tree_texts=tuple(decoded.text(node.token) if node.parent is not None else "" for node in tree.nodes)
            if tree
            else (),
            alternatives=tuple((decoded.read(each), each.score) for each in decoded.result.hypotheses),
            numbers=_numbers(arrays, options.numbers) if options.numbers else None,
            largest_difference=float(gaps.max(initial=0.0)),
            same_choices=greedy,
            architecture=served.bundle.architecture,
            model_name=served.bundle.name,
            model_version=served.bundle.version,
            precision=served.bundle.precision,
            decode_seconds=decoded.result.decode_seconds,
            explain_seconds=self._clock() - started_at,
        )


def _beam_size(options: ExplainOptions, planner: Planner) -> int:
    return planner.default_beam_size if options.beam_size is None else options.beam_size


def _find(planned: TextPlan, options: ExplainOptions) -> tuple[Planner, Unit]:
    """The unit to explain; raises if there is none, or if the pair goes through two models."""
    segments = planned.segments
    if not segments or not planned.planners:
        raise errors.InvalidRequest("There is nothing to translate here, so there is nothing to explain.")
    if len(planned.planners) > 1:
        raise errors.InvalidRequest(
            f"This pair goes through {planned.pivot}, with two models in a row; explain each of the two pairs alone."
        )
    if options.segment >= len(segments):
        raise errors.InvalidRequest(f"The text has {len(segments)} segments; the first is number 0.")
    planner, bundle = planned.planners[0], planned.planners[0].hop.served.bundle
    if EXPLAIN not in bundle.files:
        raise errors.NotFound("This bundle carries no explain graph; export it again to explain its translations.")
    units = units_of(planned.plans[options.segment])
    if not units:
        raise errors.InvalidRequest("This segment has no words: it is copied, so there is nothing to explain.")
    (unit,) = units_of(next(planner.attempts(units[0], _beam_size(options, planner))))  # as it is decoded first
    _check_numbers(bundle.architecture, unit, options.numbers)
    return planner, unit


def _check_numbers(architecture: Architecture, unit: Unit, numbers: NumbersOf | None) -> None:
    if numbers is None:
        return
    if len(unit.source_ids) > MAX_NUMBERS_TOKENS:
        raise errors.TooLarge(
            f"The numbers are shown for at most {MAX_NUMBERS_TOKENS} tokens; take a shorter sentence."
        )
    for name, value, count in (
        ("encoder_layer", numbers.encoder_layer, architecture.encoder_layers),
        ("decoder_layer", numbers.decoder_layer, architecture.decoder_layers),
        ("head", numbers.head, architecture.num_heads),
    ):
        if value >= count:
            raise errors.InvalidRequest(f"{name} is {value}; this model has {count}, and the first is number 0.")


def _choose(planner: Planner, unit: Unit, result: DecodingResult) -> _Decoded:
    """The hypothesis that `translate` takes: the first that kept every placeholder."""
    if not result.hypotheses:
        raise errors.DeadlineExceeded("The request's time ran out before its translation began; try later.")
    found = [(each, read_answer(planner.tokenizer, unit, each.ids)[1]) for each in result.hypotheses]
    best, kept = next(((each, kept) for each, kept in found if kept), found[0])
    return _Decoded(planner, unit, result, best, kept)


def _wanted(options: ExplainOptions, architecture: Architecture) -> list[str]:
    names = [*_CHOICES, "cross_attention"]
    if options.self_attention:
        # A recurrent decoder looks at its own tokens through a cell, which has no attention to show.
        names += _SELF_ATTENTION if architecture.decoder == "attention" else _SELF_ATTENTION[:1]
    if options.numbers:
        names += _WHOLE_NUMBERS
        names += [f"{part}_{name}" for part in ("encoder", "cross") for name in _HEAD_NUMBERS]
        names += ["encoder_in", "encoder_normed", "encoder_change", "encoder_after"]
    return list(dict.fromkeys(names))


def _tokens(decoded: _Decoded, arrays: Mapping[str, Any]) -> list[ExplainedToken]:
    rows = zip(
        decoded.target_ids,
        decoded.best.log_probs,
        arrays["log_sum_exp"].tolist(),
        *(arrays[name].tolist() for name in ("ids", "log_probs", "logits")),
        strict=False,
    )
    return [
        ExplainedToken(token_id, decoded.text(token_id), log_prob, log_sum_exp, _choices(decoded, *columns))
        for token_id, log_prob, log_sum_exp, *columns in rows
    ]


def _choices(
    decoded: _Decoded, ids: Sequence[int], log_probs: Sequence[float], logits: Sequence[float]
) -> tuple[TokenChoice, ...]:
    columns = zip(ids, log_probs, logits, strict=True)
    return tuple(
        TokenChoice(token_id, decoded.text(token_id), log_prob, logit) for token_id, log_prob, logit in columns
    )


def _numbers(arrays: Mapping[str, Floats], wanted: NumbersOf) -> dict[str, Floats]:
    """The numbers of one layer and head."""
    numbers = {name: arrays[name].reshape(-1, arrays[name].shape[-1]) for name in _WHOLE_NUMBERS}
    for part, layer in (("encoder", wanted.encoder_layer), ("cross", wanted.decoder_layer)):
        for name in _HEAD_NUMBERS:
            numbers[f"{part}_{name}"] = arrays[f"{part}_{name}"][layer, wanted.head]
    for name in ("encoder_in", "encoder_normed", "encoder_change", "encoder_after"):
        numbers[name] = arrays[name][wanted.encoder_layer]
    return numbers
