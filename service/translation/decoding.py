"""Units -> translations, for one request: board, wait, read, and try again in pieces what lost a placeholder.

A sentence with tags is decoded without them where the model can be asked where its words went (`tag_places.py`): it
reads better so, and no tag is lost. Elsewhere tags travel as placeholders like all else.

Knows engines only through the cache, and maps their refusals to ours. Which units there are is decided by `plan.py`;
what becomes of the translations, by `translator.py`.
"""

import asyncio
import functools
import itertools
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

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
from dragoman.service.translation.arrival import arrival
from dragoman.service.translation.cache import Order, SegmentCache, SegmentKey, Ticket
from dragoman.service.translation.contract import (
    NO_TIME,
    Alternative,
    SegmentWarning,
    Timings,
    TokenLogProb,
    TranslationOptions,
)
from dragoman.service.translation.placeholders import Chunk, plain_text
from dragoman.service.translation.plan import Literal, Plan, Planner, Unit
from dragoman.service.translation.tag_places import Floats, Reach, is_tag, place_tags

# Of a bundle's translation, given as the ids of source and target: [target tokens, source tokens], or nothing.
AskAttention = Callable[[Served, Sequence[int], Sequence[int]], Awaitable[Floats | None]]

# How bad an ending is, when several units make one segment.
_BY_SEVERITY = (
    FinishReason.EOS,
    FinishReason.REPETITION,
    FinishReason.LENGTH,
    FinishReason.DEADLINE,
    FinishReason.CANCELLED,
)
# Nearly all requests ask for the same few: those are checked, and hashed, once. A prefix is a caller's own.
_decoding_options = functools.lru_cache(maxsize=256, typed=True)(DecodingOptions)
_INLINE_TOKENS = 2000  # of a request that plans its second attempts upon the event loop
_PATIENCE_SECONDS = 0.25  # between attempts to queue a request's later work


class Outcome(NamedTuple):
    """A unit, or several joined, as translated so far; chunks keep the spans for a second hop."""

    chunks: tuple[Chunk, ...]
    score: float = 0.0
    finish_reason: FinishReason = FinishReason.EOS
    num_tokens: int = 0
    warnings: tuple[SegmentWarning, ...] = ()
    alternatives: tuple[Alternative, ...] = ()
    log_probs: tuple[TokenLogProb, ...] = ()
    timings: Timings = NO_TIME

    @property
    def text(self) -> str:
        return plain_text(self.chunks)


@dataclass(frozen=True)
class Style:
    """What is asked of one decode beyond the request's options."""

    final: bool = True  # the last hop: alternatives and log-probabilities are of this one
    prefix: str | None = None
    on_token: Callable[[int, float], None] | None = None


PLAIN = Style()


@dataclass(eq=False)
class Errand:
    """A unit on its way."""

    planner: Planner
    unit: Unit
    order: Order
    tagged: Unit | None = None  # the unit is this one without its tags
    ticket: Ticket | None = None


def beam_size_of(options: TranslationOptions, planner: Planner) -> int:
    return planner.default_beam_size if options.beam_size is None else options.beam_size


class RequestDecoder:
    """All decodes of one request: its options, its deadline, its place in the queue."""

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
        self._request = object()  # one fair share for all of the request's units
        self._waiting: set[Ticket] = set()
        self._closed = False
        self._timer: asyncio.TimerHandle | None = None
        self.num_tokens = 0  # source tokens of the request's first hop

    def close(self) -> None:
        """Give up whatever is still under way."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for ticket in list(self._waiting):
            ticket.future.cancel()
        self._waiting.clear()

    def errands(self, planner: Planner, plan: Plan, style: Style) -> list[Errand]:
        """One for each unit; a forced prefix begins the first."""
        units = _units(plan)
        return [self._errand(planner, unit, style, None if i else style.prefix) for i, unit in enumerate(units)]

    def _errand(
        self, planner: Planner, unit: Unit, style: Style, prefix: str | None, with_tags: bool = False
    ) -> Errand:
        bare = None if with_tags or _quotes_tag(prefix, unit) else self._without_tags(planner, unit)
        decoded = bare or unit
        prefix_ids = planner.target_prefix_ids(prefix, decoded) if prefix else ()
        beam_size = beam_size_of(self._options, planner)
        options = self._decoding_options(beam_size, bool(decoded.spans), style.final, prefix_ids)
        key = SegmentKey(planner.hop.served.identity, decoded.source_ids, options, self._tenant)
        order = Order(key, self._request, self.num_tokens, self._deadline_at, style.on_token)
        return Errand(planner, decoded, order, unit if bare else None)

    def _without_tags(self, planner: Planner, unit: Unit) -> Unit | None:
        may_ask = self._ask_attention is not None and bool(unit.spans) and planner.can_explain
        return planner.without_tags(unit) if may_ask else None

    def _decoding_options(
        self, beam_size: int, has_spans: bool, final: bool, prefix_ids: tuple[int, ...]
    ) -> DecodingOptions:
        options = self._options
        # Of a beam the first hypothesis that kept all spans is taken: see them all, and which of them ended.
        choose = has_spans and beam_size > 1
        make = DecodingOptions if prefix_ids else _decoding_options
        return make(
            beam_size,
            beam_size if choose else options.n_best if final else 1,
            options.length_penalty,
            options.max_new_tokens,
            prefix_ids,
            options.repetition_guard,
            choose or (final and options.log_probs),
        )

    # Boarding

    def board(self, errands: Iterable[Errand]) -> None:
        """Begin all of an engine's decodes or none; raises one of our refusals. May run on another thread."""
        by_engine: dict[int, list[Errand]] = {}
        for errand in errands:
            by_engine.setdefault(id(errand.planner.hop.served), []).append(errand)
        for together in by_engine.values():
            try:
                tickets = self._cache.board(together[0].planner.hop.served.engine, [each.order for each in together])
            except (QueueFull, JobRejected, EngineStopped) as error:
                raise refusal(error) from error
            for errand, ticket in zip(together, tickets, strict=True):
                errand.ticket = ticket
            self._waiting.update(tickets)
        if self._closed:  # meanwhile
            self.close()

    async def _board_patiently(self, errands: Sequence[Errand]) -> None:
        """For work that follows other work: a full queue is waited for, as long as the deadline allows."""
        while True:
            try:
                self.board(errands)
                self.watch_deadline()
                if self._deadline_at is not None and self._clock() >= self._deadline_at:
                    self._expire()  # its timer has rung before this was boarded
                return
            except errors.QueueFull as error:
                pause = min(error.retry_after_seconds or _PATIENCE_SECONDS, _PATIENCE_SECONDS)
                if self._deadline_at is not None and self._clock() + pause >= self._deadline_at:
                    raise
                await asyncio.sleep(pause)

    def watch_deadline(self) -> None:
        """The engine ends jobs that are late; only a shared decode may outlive a waiter's own deadline."""
        if self._deadline_at is not None and self._timer is None:
            seconds = max(0.0, self._deadline_at - self._clock())
            self._timer = asyncio.get_running_loop().call_later(seconds, self._expire)

    def _expire(self) -> None:
        for ticket in list(self._waiting):
            self._cache.expire(ticket)

    # Waiting and reading

    async def collect(self, plan: Plan, errands: Sequence[Errand], style: Style) -> Outcome:
        """The plan's translation, when its errands were boarded."""
        if len(errands) == 1:
            outcomes = [await self._fetch(errands[0], style)]
        else:
            outcomes = list(await asyncio.gather(*(self._fetch(errand, style) for errand in errands)))
        return _assembled(plan, outcomes)

    async def follow(self, planner: Planner, plan: Plan, style: Style) -> Outcome:
        """Board and collect, for work that follows other work."""
        errands = self.errands(planner, plan, style)
        await self._board_patiently(errands)
        return await self.collect(plan, errands, style)

    async def _fetch(self, errand: Errand, style: Style) -> Outcome:
        result = await self._result(errand)
        found = [_Found(each, *errand.planner.read(errand.unit, each.ids)) for each in result.hypotheses]
        if errand.unit.shouted and style.prefix is not None:
            found = [each._replace(chunks=_beginning(style.prefix, each.chunks)) for each in found]
        if errand.tagged is not None:
            found = [await self._with_tags(errand, errand.tagged, each) for each in found]
        outcome = self._read(errand, result, found, style)
        if SegmentWarning.PLACEHOLDER_LOST not in outcome.warnings or outcome.finish_reason is FinishReason.DEADLINE:
            return outcome
        return await self._retry(errand, replace(style, on_token=None), outcome)

    async def _with_tags(self, errand: Errand, tagged: Unit, found: "_Found") -> "_Found":
        """A translation made without tags, with them; it has lost them where nobody knows where they go."""
        assert self._ask_attention is not None
        planner, bare, ids = errand.planner, errand.unit, found.hypothesis.ids
        attention = await self._ask_attention(planner.hop.served, bare.source_ids, ids) if found.kept else None
        if attention is None:
            return found._replace(kept=False)
        reach = Reach(planner.reach(bare, bare.source_ids), planner.reach(bare, ids))
        chunks = place_tags(tagged.chunks, found.chunks, reach, attention)
        return found._replace(kept=False) if chunks is None else found._replace(chunks=chunks)

    async def _result(self, errand: Errand) -> DecodingResult:
        assert errand.ticket is not None
        try:
            return await arrival(errand.ticket.future)
        except (QueueFull, JobRejected, EngineStopped, EngineFailure) as error:
            raise refusal(error) from error
        finally:
            self._waiting.discard(errand.ticket)

    async def _retry(self, errand: Errand, style: Style, lost: Outcome) -> Outcome:
        if errand.tagged is not None:  # once more, with placeholders for its tags
            again = self._errand(errand.planner, errand.tagged, style, style.prefix, with_tags=True)
            await self._board_patiently([again])
            return await self._fetch(again, style)
        retried = await self._in_pieces(errand, style)
        warnings = (*retried.warnings, SegmentWarning.PLACEHOLDER_RETRIED)
        if style.final and self._options.n_best > 1:
            warnings += (SegmentWarning.ALTERNATIVES_DROPPED,)
        return retried._replace(warnings=warnings, timings=_in_turn(lost.timings, retried.timings))

    async def _in_pieces(self, errand: Errand, style: Style) -> Outcome:
        """Once more in pieces, between which the spans stand as they are."""
        work = functools.partial(errand.planner.pieces, errand.unit.chunks)
        # Of a long text a thousand segments may be tried again at one time: nobody else is to wait for that.
        plan = await asyncio.to_thread(work) if self.num_tokens > _INLINE_TOKENS else work()
        style = replace(style, prefix=_before_spans(style.prefix, errand.unit))
        return await self.follow(errand.planner, plan, style)

    def _read(self, errand: Errand, result: DecodingResult, found: Sequence["_Found"], style: Style) -> Outcome:
        timings = Timings(result.queue_seconds, result.encode_seconds, result.decode_seconds)
        if not found:
            lost = (SegmentWarning.PLACEHOLDER_LOST,) if errand.unit.spans or errand.tagged else ()
            return Outcome((), finish_reason=result.finish_reason, warnings=lost, timings=timings)
        best = found[0] if found[0].kept else next((each for each in found if each.kept), found[0])
        reason = result.finish_reason
        if best is not found[0] and reason is FinishReason.EOS and not best.ended:
            reason = FinishReason.LENGTH  # it kept its spans, but did not end
        others = [each for each in found if each.kept and each is not best]
        wanted = min(self._options.n_best, len(found)) - 1 if style.final else 0
        return Outcome(
            best.chunks,
            best.hypothesis.score,
            reason,
            len(best.hypothesis.ids) + (reason is FinishReason.EOS),
            tuple(_warnings(best.kept, enough=len(others) >= wanted)),
            tuple([Alternative(plain_text(each.chunks), each.hypothesis.score) for each in others[:wanted]]),
            _log_probs(errand, best.hypothesis) if style.final and self._options.log_probs else (),
            timings,
        )


class _Found(NamedTuple):
    """A hypothesis, read."""

    hypothesis: Hypothesis
    chunks: tuple[Chunk, ...]
    kept: bool  # every span, exactly once

    @property
    def ended(self) -> bool:
        """With eos, which has a log-probability but is no token of the text."""
        return len(self.hypothesis.log_probs) > len(self.hypothesis.ids)


def _warnings(kept: bool, enough: bool) -> Iterator[SegmentWarning]:
    if not kept:
        yield SegmentWarning.PLACEHOLDER_LOST
    if not enough:
        yield SegmentWarning.ALTERNATIVES_DROPPED


def _beginning(prefix: str, chunks: tuple[Chunk, ...]) -> tuple[Chunk, ...]:
    """What was forced, as it was given, where all has been written in capitals."""
    first = chunks[0] if chunks else ""
    if not isinstance(first, str) or first[: len(prefix)].casefold() != prefix.casefold():
        return chunks
    return (prefix + first[len(prefix) :], *chunks[1:])


def _quotes_tag(prefix: str | None, unit: Unit) -> bool:
    return prefix is not None and any(is_tag(span) and span.text in prefix for span in unit.spans)


def _before_spans(prefix: str | None, unit: Unit) -> str | None:
    """What of a prefix goes to a first piece: the text up to a span that it quotes, which stands there by itself."""
    ends = [prefix.index(span.text) for span in unit.spans if span.text in prefix] if prefix else []
    return (prefix[: min(ends)].strip() or None) if prefix and ends else prefix


def worse(one: FinishReason, other: FinishReason) -> FinishReason:
    return max(one, other, key=_BY_SEVERITY.index)


def joined(first: Outcome, then: Outcome) -> Outcome:
    """One hop after another: the text is the second's, the trouble is that of both."""
    return then._replace(
        finish_reason=worse(first.finish_reason, then.finish_reason),
        warnings=tuple(dict.fromkeys((*first.warnings, *then.warnings))),
        timings=_in_turn(first.timings, then.timings),
    )


def _assembled(plan: Plan, outcomes: Sequence[Outcome]) -> Outcome:
    """Units beside each other, with the literals between them."""
    if len(plan) == len(outcomes) == 1:
        return outcomes[0]
    outcomes = [_kept_if_empty(outcome, unit) for outcome, unit in zip(outcomes, _units(plan), strict=True)]
    rest = iter(outcomes)
    chunks = [(part.chunk,) if isinstance(part, Literal) else next(rest).chunks for part in plan]
    num_tokens = sum(outcome.num_tokens for outcome in outcomes)
    reason = FinishReason.EOS
    for outcome in outcomes:
        reason = worse(reason, outcome.finish_reason)
    return Outcome(
        tuple(itertools.chain.from_iterable(chunks)),
        sum(outcome.score * outcome.num_tokens for outcome in outcomes) / max(1, num_tokens),
        reason,
        num_tokens,
        tuple(dict.fromkeys(warning for outcome in outcomes for warning in outcome.warnings)),
        (),
        tuple(itertools.chain.from_iterable(outcome.log_probs for outcome in outcomes)),
        longest(outcome.timings for outcome in outcomes),
    )


def _units(plan: Plan) -> list[Unit]:
    return [part for part in plan if isinstance(part, Unit)]


def _kept_if_empty(outcome: Outcome, unit: Unit) -> Outcome:
    """A word by itself (`não`, `com`) may come out as nothing; among others it is better left as it was, and told."""
    if outcome.text.strip() or outcome.finish_reason is not FinishReason.EOS:
        return outcome
    return outcome._replace(chunks=unit.chunks, warnings=(*outcome.warnings, SegmentWarning.EMPTY_TRANSLATION))


def longest(timings: Iterable[Timings]) -> Timings:
    """Of work done side by side: the longest of each stage."""
    return Timings(*map(max, zip(NO_TIME, *timings, strict=True)))


def _in_turn(first: Timings, then: Timings) -> Timings:
    return Timings(
        first.queue_seconds + then.queue_seconds,
        first.encode_seconds + then.encode_seconds,
        first.decode_seconds + then.decode_seconds,
    )


def _log_probs(errand: Errand, hypothesis: Hypothesis) -> tuple[TokenLogProb, ...]:
    eos_id = errand.planner.hop.served.bundle.special_ids.eos
    texts = [errand.planner.token_text(errand.unit, token_id) for token_id in (*hypothesis.ids, eos_id)]
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
