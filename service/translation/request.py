"""One translation request under way: a task for each segment of each text, and the answer when all are done.

`translator.py` checks a request and plans its texts; `decode.py` decodes its units.
"""

import asyncio
from collections.abc import Sequence
from typing import Self

from dragoman.service.catalog.served import Lease
from dragoman.service.engine.job import FinishReason
from dragoman.service.errors import DeadlineExceeded, StrictRefusal
from dragoman.service.translation.contract import (
    Segment,
    SegmentWarning,
    Timings,
    Translation,
    TranslationOptions,
    TranslationResult,
)
from dragoman.service.translation.decode import Decoder, OnToken, beam_size_of, joined, longest
from dragoman.service.translation.decode_request import DecodeRequest
from dragoman.service.translation.joining import Joints
from dragoman.service.translation.numbers import changed_numbers
from dragoman.service.translation.plan import TextPlan
from dragoman.service.translation.segments import join
from dragoman.service.translation.streaming import TokenSink
from dragoman.service.translation.unit import Plan, is_whole, units_of
from dragoman.service.translation.writing import is_unspaced

_INLINE_SEGMENTS = 50  # a request with more is queued on another thread, so that others need not wait


class ActiveRequest:
    """Used in a `with`: at its end nothing of the request is under way, and its engines may go."""

    def __init__(
        self,
        texts: Sequence[TextPlan],
        target: str,
        decoder: Decoder,
        options: TranslationOptions,
        leases: Sequence[Lease],
    ) -> None:
        self.texts, self._target = texts, target
        self._decoder, self._options, self._leases = decoder, options, leases
        self._prefix = (options.target_prefix or "").strip() or None
        self._tasks: list[asyncio.Task[Segment]] = []
        self._timings: list[Timings] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give up whatever is still under way."""
        for task in self._tasks:
            task.cancel()
            task.add_done_callback(_retrieve_error)
        self._decoder.close()
        for lease in self._leases:
            lease.end()

    async def segments(self) -> list[list[Segment]]:
        """Queue everything or nothing, and wait for all of it."""
        queued = await self._queue_all(())
        if len(queued) == len(queued[0]) == 1:  # most requests: they need no task
            return [[await self._segment(self.texts[0], 0, (), queued[0][0])]]
        started = self._start(queued, ())
        await asyncio.gather(*self._tasks)
        return [[task.result() for task in tasks] for tasks in started]

    async def start(self, sinks: Sequence[TokenSink]) -> list[asyncio.Task[Segment]]:
        """Queue everything or nothing of a single text; then a task for each segment, which tells its sink."""
        return self._start(await self._queue_all(sinks), sinks)[0]

    def _start(
        self, queued: Sequence[Sequence[Sequence[DecodeRequest]]], sinks: Sequence[TokenSink]
    ) -> list[list[asyncio.Task[Segment]]]:
        started = [
            [asyncio.create_task(self._segment(text, i, sinks, own)) for i, own in enumerate(of_text)]
            for text, of_text in zip(self.texts, queued, strict=True)
        ]
        self._tasks = [task for of_text in started for task in of_text]
        return started

    async def _queue_all(self, sinks: Sequence[TokenSink]) -> list[list[list[DecodeRequest]]]:
        """The decode requests of each segment of each text, all of them queued."""
        many = sum([len(text.segments) for text in self.texts]) > _INLINE_SEGMENTS
        requests = await asyncio.to_thread(self._queue, sinks) if many else self._queue(sinks)
        self._decoder.watch_deadline()
        return requests

    def _queue(self, sinks: Sequence[TokenSink]) -> list[list[list[DecodeRequest]]]:
        units = [unit for text in self.texts for plan in text.plans for unit in units_of(plan)]
        self._decoder.num_tokens = sum([len(unit.source_ids) for unit in units])
        requests = [
            [self._requests(text, index, 0, plan, sinks) for index, plan in enumerate(text.plans)]
            for text in self.texts
        ]
        self._decoder.submit([each for of_text in requests for of_segment in of_text for each in of_segment])
        return requests

    # Segments

    def _requests(
        self, text: TextPlan, index: int, hop: int, plan: Plan, sinks: Sequence[TokenSink]
    ) -> list[DecodeRequest]:
        planner = text.planners[hop]
        if hop < len(text.planners) - 1:
            return self._decoder.requests(planner, plan, final=False)
        on_token: OnToken | None = None
        if sinks and beam_size_of(self._options, planner) == 1 and _may_stream(plan):
            on_token = sinks[index].listener(planner.tokenizer.stream())
        return self._decoder.requests(planner, plan, prefix=self._prefix_of(text, index), on_token=on_token)

    def _prefix_of(self, text: TextPlan, index: int) -> str | None:
        return self._prefix if index == text.first_translated else None

    async def _segment(
        self, text: TextPlan, index: int, sinks: Sequence[TokenSink], requests: Sequence[DecodeRequest]
    ) -> Segment:
        plan, decoder = text.plans[index], self._decoder
        segment = await (decoder.translate(requests[0]) if is_whole(plan) else decoder.collect(plan, requests))
        for hop, planner in enumerate(text.planners[1:], 1):
            plan = planner.document(segment.chunks)
            following = self._requests(text, index, hop, plan, sinks)
            segment = joined(segment, await decoder.follow(plan, following))
        self._timings.append(segment.timings)
        segment = self._answer(text, index, segment)
        if self._options.strict:
            _refuse_losses(segment)
        return segment

    def _answer(self, text: TextPlan, index: int, segment: Segment) -> Segment:
        """The segment with its source and all its warnings."""
        source, prefix = text.source(index), self._prefix_of(text, index)
        warnings = (*text.warnings(index), *segment.warnings)
        empty = not segment.text.strip() and segment.finish_reason is FinishReason.EOS
        if empty and SegmentWarning.EMPTY_TRANSLATION not in warnings:
            warnings += (SegmentWarning.EMPTY_TRANSLATION,)
        if changed_numbers(source, segment.text):
            warnings += (SegmentWarning.NUMBER_CHANGED,)
        if prefix is not None and _continues(prefix, segment.text):
            warnings += (SegmentWarning.PREFIX_CONTINUED,)
        log_probs = segment.log_probs if self._options.log_probs else None
        return segment._replace(source=source, warnings=warnings, log_probs=log_probs)

    # The answer

    def result(self, segments: Sequence[Sequence[Segment]]) -> TranslationResult:
        """Raises DeadlineExceeded if time ran out before anything was decoded."""
        every = [segment for of_text in segments for segment in of_text]
        late = [segment for segment in every if segment.finish_reason is FinishReason.DEADLINE]
        if late and not any(segment.num_tokens for segment in every):
            raise DeadlineExceeded(
                "The request's time ran out before its translation began; allow more time, or try later."
            )
        if late and self._options.whole:
            raise DeadlineExceeded("The request's time ran out in mid-translation; allow more time, or send less text.")
        served = dict.fromkeys([planner.hop.served for text in self.texts for planner in text.planners])
        return TranslationResult(
            tuple(
                [_translation(text, of_text, self._target) for text, of_text in zip(self.texts, segments, strict=True)]
            ),
            self._target,
            "+".join([each.bundle.name for each in served]),
            "+".join([each.bundle.version for each in served]),
            longest(self._timings),
        )


def _translation(text: TextPlan, segments: Sequence[Segment], target: str) -> Translation:
    texts = [segment.text for segment in segments]
    between = Joints(text.text, text.segments, target).all(texts)
    whole = join(between, texts)
    return Translation(whole, text.language, text.pivot, tuple(segments), tuple(between), text.detected)


def _retrieve_error(task: asyncio.Task[Segment]) -> None:
    """Another failure was reported first; asyncio would log this one because nobody looked at it."""
    if not task.cancelled():
        task.exception()


def _may_stream(plan: Plan) -> bool:
    """One unit without spans: its tokens are its text, and no later attempt replaces them."""
    return is_whole(plan) and not any(unit.spans or unit.shouted for unit in units_of(plan))


def _continues(prefix: str, text: str) -> bool:
    following = text[len(prefix) : len(prefix) + 1]
    return text.startswith(prefix) and prefix[-1].isalnum() and following.isalnum() and not is_unspaced(following)


def _refuse_losses(segment: Segment) -> None:
    """Raise for what `strict` does not accept."""
    if segment.finish_reason is FinishReason.DEADLINE:
        raise DeadlineExceeded(
            "The request's time ran out in mid-translation, and strict accepts only whole translations."
        )
    if segment.finish_reason is not FinishReason.EOS:
        raise StrictRefusal(f"A segment ended by {segment.finish_reason}, and strict accepts only whole translations.")
    if SegmentWarning.PLACEHOLDER_LOST in segment.warnings:
        raise StrictRefusal("A placeholder or glossary term was lost in translation, and strict accepts no loss.")
    if SegmentWarning.EMPTY_TRANSLATION in segment.warnings:
        raise StrictRefusal("The translation of a segment, or of a part of it, is empty, and strict accepts no loss.")
    if SegmentWarning.NUMBER_CHANGED in segment.warnings:
        raise StrictRefusal("A number was changed in translation, and strict accepts no loss.")
