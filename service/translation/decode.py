"""Decode the units of one request: submit, wait, read, and walk the attempts of a unit until one kept all its spans.

`plan.py` says what the attempts of a unit are; the first answer that kept everything wins. Scores are compared only
between hypotheses of one decode: those of different attempts come from different texts. Engines are reached only
through the cache, and their refusals become refusals of ours.
"""

import asyncio
import functools
import itertools
from collections.abc import Awaitable, Callable, Iterable, Sequence

from dragoman.service import errors
from dragoman.service.catalog.served import Served
from dragoman.service.engine.job import (
    DecodingOptions,
    DecodingResult,
    EngineFailure,
    EngineStopped,
    FinishReason,
    Hypothesis,
    JobRejected,
    QueueFull,
)
from dragoman.service.translation.answers import put_tags_back, read_answer, token_text
from dragoman.service.translation.arrival import arrival
from dragoman.service.translation.cache import SegmentCache
from dragoman.service.translation.contract import (
    NO_TIME,
    Alternative,
    Segment,
    SegmentWarning,
    Timings,
    TokenLogProb,
    TranslationOptions,
)
from dragoman.service.translation.decode_request import DecodeRequest
from dragoman.service.translation.joining import joint
from dragoman.service.translation.placeholders import plain_text
from dragoman.service.translation.plan import Planner
from dragoman.service.translation.spans import Chunk, Span
from dragoman.service.translation.tag_places import Floats
from dragoman.service.translation.unit import Plan, Unit, is_whole, units_of

# Asks a bundle for the attention of a translation, given the ids of source and target: [target tokens, source tokens],
# or None if the bundle cannot tell.
AskAttention = Callable[[Served, Sequence[int], Sequence[int]], Awaitable[Floats | None]]
OnToken = Callable[[int, float], None]
Answer = tuple[tuple[Chunk, ...], bool]  # a hypothesis as text and spans, and whether every span is there exactly once

# How bad an ending is, when several units make one segment.
_BY_SEVERITY = (
    FinishReason.EOS,
    FinishReason.REPETITION,
    FinishReason.LENGTH,
    FinishReason.DEADLINE,
    FinishReason.CANCELLED,
)
# Nearly all requests ask for the same few options: these are checked and hashed once. A prefix is a caller's own.
_decoding_options = functools.lru_cache(maxsize=256, typed=True)(DecodingOptions)
_INLINE_TOKENS = 2000  # a larger request plans its later attempts on another thread
_PATIENCE_SECONDS = 0.25  # between attempts to queue a request's later work


def beam_size_of(options: TranslationOptions, planner: Planner) -> int:
    return planner.default_beam_size if options.beam_size is None else options.beam_size


class Decoder:
    """All decodes of one translation request: its options, its deadline, its turn in the queue."""

    def __init__(
        self,
        cache: SegmentCache,
        clock: Callable[[], float],
        options: TranslationOptions,
        tenant: str,
        deadline_at: float | None,
        ask_attention: AskAttention | None = None,
    ) -> None:
        self._ask_attention = ask_attention
        self._cache, self._clock, self._options, self._tenant = cache, clock, options, tenant
        self._deadline_at = deadline_at
        self._owner = object()  # one fair share for all decodes of the translation request
        self._waiting: set[DecodeRequest] = set()
        self._closed = False
        self._timer: asyncio.TimerHandle | None = None
        self.num_tokens = 0  # source tokens of the translation request's first hop

    def close(self) -> None:
        """Give up whatever is still under way."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for request in list(self._waiting):
            request.promise.cancel()
        self._waiting.clear()

    # Making requests

    def requests(
        self,
        planner: Planner,
        plan: Plan,
        *,
        final: bool = True,
        prefix: str | None = None,
        on_token: OnToken | None = None,
    ) -> list[DecodeRequest]:
        """The first attempt of each unit. `prefix` begins the translation, and so the first unit's."""
        requests: list[DecodeRequest] = []
        rest = _before_spans(prefix, plan) if prefix else None
        for unit in units_of(plan):
            if unit.spans:
                attempts = planner.attempts(unit, beam_size_of(self._options, planner), rest)
                (first,) = units_of(next(attempts))
                request = self._request(planner, first, attempts, final, rest)
            else:
                request = self._request(planner, unit, (), final, rest)
            request.on_token = on_token
            requests.append(request)
            rest = None
        return requests

    def _request(
        self, planner: Planner, unit: Unit, attempts: Iterable[Plan], final: bool, prefix: str | None
    ) -> DecodeRequest:
        prefix_ids = planner.target_prefix_ids(prefix, unit) if prefix else ()
        options = self._options
        beam_size = unit.beam_size or beam_size_of(options, planner)
        # Of a beam the first hypothesis that kept all spans is taken: ask for all, and for which of them ended.
        choose = bool(unit.spans) and beam_size > 1
        decoding = (DecodingOptions if prefix_ids else _decoding_options)(
            beam_size,
            beam_size if choose else options.n_best if final else 1,
            options.length_penalty,
            options.max_new_tokens,
            prefix_ids,
            options.repetition_guard,
            choose or (final and options.log_probs),
        )
        key = (planner.hop.served.identity, unit.source_ids, decoding, self._tenant)
        return DecodeRequest(
            planner, unit, key, attempts, prefix, final, self._owner, self.num_tokens, self._deadline_at
        )

    # Submitting

    def submit(self, requests: Sequence[DecodeRequest]) -> None:
        """Begin all of an engine's decodes or none; raises one of our refusals. May run on another thread."""
        by_engine: dict[int, list[DecodeRequest]] = {}
        for request in requests:
            by_engine.setdefault(id(request.planner.hop.served), []).append(request)
        for together in by_engine.values():
            try:
                self._cache.submit_all(together[0].planner.hop.served.engine, together)
            except (QueueFull, JobRejected, EngineStopped) as error:
                raise refusal(error) from error
            self._waiting.update(together)
        if self._closed:  # meanwhile
            self.close()

    async def _submit_patiently(self, requests: Sequence[DecodeRequest]) -> None:
        """For work that follows other work: wait while the queue is full, as long as the deadline allows."""
        while True:
            try:
                self.submit(requests)
                self.watch_deadline()
                if self._deadline_at is not None and self._clock() >= self._deadline_at:
                    self._expire()  # the timer fired before these were submitted
                return
            except errors.QueueFull as error:
                pause = min(error.retry_after_seconds or _PATIENCE_SECONDS, _PATIENCE_SECONDS)
                if self._deadline_at is not None and self._clock() + pause >= self._deadline_at:
                    raise
                await asyncio.sleep(pause)

    def watch_deadline(self) -> None:
        """The engine ends jobs that are late; only a shared decode may outlive the deadline of one of its waiters."""
        if self._deadline_at is not None and self._timer is None:
            seconds = max(0.0, self._deadline_at - self._clock())
            self._timer = asyncio.get_running_loop().call_later(seconds, self._expire)

    def _expire(self) -> None:
        for request in list(self._waiting):
            self._cache.expire(request)

    # Waiting

    async def collect(self, plan: Plan, requests: Sequence[DecodeRequest]) -> Segment:
        """The translation of a plan, from the translations of its units. Their requests must be submitted."""
        if len(requests) == 1:
            segments = [await self.translate(requests[0])]
        else:
            segments = list(await asyncio.gather(*(self.translate(request) for request in requests)))
        if is_whole(plan):
            return segments[0]
        return _assembled(plan, segments, requests[0].planner.hop.pair.target if requests else "")

    async def follow(self, plan: Plan, requests: Sequence[DecodeRequest]) -> Segment:
        """Submit and collect, for work that follows other work."""
        await self._submit_patiently(requests)
        return await self.collect(plan, requests)

    async def translate(self, request: DecodeRequest) -> Segment:
        """The translation of one unit: walk its attempts until one has kept everything."""
        segment = await self._decode(request)
        while _may_try_again(segment) and (plan := await self._next_attempt(request)) is not None:
            requests = self._requests_again(request, plan)
            await self._submit_patiently(requests)
            if is_whole(plan):
                again = await self._decode(requests[0])
            else:
                again = self._from_pieces(request, await self.collect(plan, requests))
            segment = again._replace(timings=_in_turn(segment.timings, again.timings))
        return segment

    async def _next_attempt(self, request: DecodeRequest) -> Plan | None:
        following = functools.partial(next, iter(request.attempts), None)
        # Of a long text a thousand segments may be tried again at the same time: other requests must not wait for that.
        return await asyncio.to_thread(following) if self.num_tokens > _INLINE_TOKENS else following()

    def _requests_again(self, request: DecodeRequest, plan: Plan) -> list[DecodeRequest]:
        planner, final, prefix = request.planner, request.final, request.prefix
        if is_whole(plan):
            return [self._request(planner, unit, (), final, prefix) for unit in units_of(plan)]
        return self.requests(planner, plan, final=final, prefix=prefix)

    def _from_pieces(self, request: DecodeRequest, segment: Segment) -> Segment:
        warnings = (*segment.warnings, SegmentWarning.PLACEHOLDER_RETRIED)
        if request.final and self._options.n_best > 1:
            warnings += (SegmentWarning.ALTERNATIVES_DROPPED,)
        return segment._replace(warnings=warnings)

    async def _decode(self, request: DecodeRequest) -> Segment:
        """Wait for one decode and read its hypotheses."""
        unit, tokenizer = request.unit, request.planner.tokenizer
        result = await self._result(request)
        answers: list[Answer] = []
        for hypothesis in result.hypotheses:
            chunks, kept = read_answer(tokenizer, unit, hypothesis.ids)
            if unit.shouted and request.prefix is not None:
                chunks = _beginning(request.prefix, chunks)
            if unit.tagged and kept:
                placed = await self._with_tags(request, hypothesis, chunks)
                chunks, kept = (chunks, False) if placed is None else (placed, True)
            answers.append((chunks, kept))
        return self._segment(request, result, answers)

    async def _with_tags(
        self, request: DecodeRequest, hypothesis: Hypothesis, chunks: Sequence[Chunk]
    ) -> tuple[Chunk, ...] | None:
        """A translation that was made without tags, with them; None if their places are not known."""
        assert self._ask_attention is not None, "a planner leaves tags out only if attention can be asked for"
        planner, unit, ids = request.planner, request.unit, hypothesis.ids
        attention = await self._ask_attention(planner.hop.served, unit.source_ids, ids)
        return None if attention is None else put_tags_back(planner.tokenizer, unit, ids, chunks, attention)

    async def _result(self, request: DecodeRequest) -> DecodingResult:
        try:
            return await arrival(request.promise)
        except (QueueFull, JobRejected, EngineStopped, EngineFailure) as error:
            raise refusal(error) from error
        finally:
            self._waiting.discard(request)

    def _segment(self, request: DecodeRequest, result: DecodingResult, answers: Sequence[Answer]) -> Segment:
        """The best hypothesis that kept every span, or the best of all. `answers` are those of the hypotheses."""
        timings = Timings(result.queue_seconds, result.encode_seconds, result.decode_seconds)
        reason = result.finish_reason
        if not answers:
            lost = (SegmentWarning.PLACEHOLDER_LOST,) if request.unit.spans or request.unit.tagged else ()
            return Segment("", "", 0.0, reason, 0, lost, (), (), (), timings)
        kept = [place for place, (_, is_kept) in enumerate(answers) if is_kept]
        best = kept[0] if kept else 0
        hypothesis = result.hypotheses[best]
        if best > 0 and reason is FinishReason.EOS and not _ended(hypothesis):
            reason = FinishReason.LENGTH  # it kept its spans, but did not end
        wanted = min(self._options.n_best, len(answers)) - 1 if request.final else 0
        others = [place for place in kept if place != best]
        warnings: tuple[SegmentWarning, ...] = () if kept else (SegmentWarning.PLACEHOLDER_LOST,)
        if len(others) < wanted:
            warnings += (SegmentWarning.ALTERNATIVES_DROPPED,)
        return Segment(
            "",  # the source is known to the request
            plain_text(answers[best][0]),
            hypothesis.score,
            reason,
            len(hypothesis.ids) + (reason is FinishReason.EOS),
            warnings,
            tuple([
                Alternative(plain_text(answers[place][0]), result.hypotheses[place].score) for place in others[:wanted]
            ]),
            _log_probs(request, hypothesis) if request.final and self._options.log_probs else (),
            answers[best][0],
            timings,
        )  # fmt: skip


def _may_try_again(segment: Segment) -> bool:
    return SegmentWarning.PLACEHOLDER_LOST in segment.warnings and segment.finish_reason is not FinishReason.DEADLINE


def _ended(hypothesis: Hypothesis) -> bool:
    """With eos, which has a log-probability but is no token of the text."""
    return len(hypothesis.log_probs) > len(hypothesis.ids)


def _beginning(prefix: str, chunks: tuple[Chunk, ...]) -> tuple[Chunk, ...]:
    """What was forced, as the caller wrote it, although all of the translation is in capitals."""
    first = chunks[0] if chunks else ""
    if not isinstance(first, str) or first[: len(prefix)].casefold() != prefix.casefold():
        return chunks
    return (prefix + first[len(prefix) :], *chunks[1:])


def _before_spans(prefix: str, plan: Plan) -> str | None:
    """What of a prefix goes to the first unit: the text before a span that it quotes and that is no part of a unit."""
    ends = [prefix.index(part.text) for part in plan if isinstance(part, Span) and part.text in prefix]
    return prefix[: min(ends)].strip() or None if ends else prefix


# Joining segments


def worse(one: FinishReason, other: FinishReason) -> FinishReason:
    return max(one, other, key=_BY_SEVERITY.index)


def joined(first: Segment, then: Segment) -> Segment:
    """One hop after another: the text of the second, the warnings of both."""
    return then._replace(
        finish_reason=worse(first.finish_reason, then.finish_reason),
        warnings=tuple(dict.fromkeys((*first.warnings, *then.warnings))),
        timings=_in_turn(first.timings, then.timings),
    )


def _assembled(plan: Plan, segments: Sequence[Segment], target: str) -> Segment:
    """Units beside each other, and what stands between them."""
    segments = [_kept_if_empty(segment, unit) for segment, unit in zip(segments, units_of(plan), strict=True)]
    chunks = _placed(plan, segments, target)
    num_tokens = sum(segment.num_tokens for segment in segments)
    return Segment(
        "",
        plain_text(chunks),
        sum(segment.score * segment.num_tokens for segment in segments) / max(1, num_tokens),
        functools.reduce(worse, [segment.finish_reason for segment in segments], FinishReason.EOS),
        num_tokens,
        tuple(dict.fromkeys(warning for segment in segments for warning in segment.warnings)),
        (),
        tuple(itertools.chain.from_iterable(segment.log_probs or () for segment in segments)),
        chunks,
        longest(segment.timings for segment in segments),
    )


def _placed(plan: Plan, segments: Sequence[Segment], target: str) -> tuple[Chunk, ...]:
    """The chunks of all units and what stands between; a space between two of them only if the target has it."""
    rest, chunks = iter(segments), list[Chunk]()
    for place, part in enumerate(plan):
        if isinstance(part, Unit):
            chunks += next(rest).chunks
            continue
        before, after = plan[place - 1] if place else None, plan[place + 1] if place + 1 < len(plan) else None
        if part == " " and isinstance(before, Unit) and isinstance(after, Unit) and chunks:
            part = joint(
                plain_text(before.chunks)[-1:], part, plain_text(chunks[-1:]), plain_text(after.chunks), target
            )
        chunks.append(part)
    return tuple([chunk for chunk in chunks if chunk != ""])


def _kept_if_empty(segment: Segment, unit: Unit) -> Segment:
    """A single word (`não`, `com`) may come out as nothing; among other pieces it is copied, with a warning."""
    if segment.text.strip() or segment.finish_reason is not FinishReason.EOS:
        return segment
    warnings = (*segment.warnings, SegmentWarning.EMPTY_TRANSLATION)
    return segment._replace(text=plain_text(unit.chunks), chunks=unit.chunks, warnings=warnings)


def longest(timings: Iterable[Timings]) -> Timings:
    """Of work done side by side: the longest of each stage."""
    return Timings(*map(max, zip(NO_TIME, *timings, strict=True)))


def _in_turn(first: Timings, then: Timings) -> Timings:
    return Timings(
        first.queue_seconds + then.queue_seconds,
        first.encode_seconds + then.encode_seconds,
        first.decode_seconds + then.decode_seconds,
    )


def _log_probs(request: DecodeRequest, hypothesis: Hypothesis) -> tuple[TokenLogProb, ...]:
    tokenizer, eos_id = request.planner.tokenizer, request.planner.hop.served.bundle.special_ids.eos
    texts = [token_text(tokenizer, request.unit, token_id) for token_id in (*hypothesis.ids, eos_id)]
    return tuple(TokenLogProb(text, log_prob) for text, log_prob in zip(texts, hypothesis.log_probs, strict=False))


def refusal(error: Exception) -> errors.DragomanError:
    match error:
        case QueueFull():
            return errors.QueueFull(str(error), error.retry_after_seconds)
        case JobRejected():
            return errors.InvalidRequest(str(error))
        case EngineStopped():
            return errors.Draining("This server is shutting down; send the request again.", 1.0)
    return errors.InternalError("The translation failed inside the engine; send the request again.")
