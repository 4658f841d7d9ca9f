"""One request under way: a task for each segment of each text, and the answer when they are done.

Made by `translator.py`, which has checked the request and planned its texts; decodes through `decoding.py`.
"""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple, Self

from dragoman.service.catalog.served import Lease
from dragoman.service.engine.job import FinishReason
from dragoman.service.errors import DeadlineExceeded, StrictRefusal
from dragoman.service.translation.contract import (
    Detection,
    Segment,
    SegmentWarning,
    Timings,
    Translation,
    TranslationOptions,
    TranslationResult,
)
from dragoman.service.translation.decoding import (
    PLAIN,
    Errand,
    Outcome,
    RequestDecoder,
    Style,
    beam_size_of,
    joined,
    longest,
)
from dragoman.service.translation.numbers import changed_numbers
from dragoman.service.translation.plan import Plan, Planner, TextPlan, Unit
from dragoman.service.translation.streaming import TokenSink

_INLINE_SEGMENTS = 50  # queued upon the event loop; more would make other requests wait


class TextWork(NamedTuple):
    """A text on its way; without planners it is in the target language already."""

    source: str
    detected: Detection | None
    planners: tuple[Planner, ...]
    plan: TextPlan
    prefixed: int | None  # the segment that a target prefix begins: the first that goes to the model

    @property
    def pivot(self) -> str | None:
        return self.planners[0].hop.pair.target if len(self.planners) > 1 else None


class Work:
    """Ends with the `with` that it stands in: then nothing of it is under way, and its engines may go."""

    def __init__(
        self,
        texts: Sequence[TextWork],
        target: str,
        decoder: RequestDecoder,
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

    async def segments(self) -> list[list[Segment]]:
        """Queue everything or nothing, and wait for all of it."""
        if len(self.texts) == 1 and len(self.texts[0].plan.segments) == 1:  # most requests: no task of their own
            ((errands,),) = await self._board(())
            return [[await self._segment(self.texts[0], 0, (), errands)]]
        started = await self.start()
        await asyncio.gather(*self._tasks)
        return [[task.result() for task in tasks] for tasks in started]

    async def start(self, sinks: Sequence[TokenSink] = ()) -> list[list[asyncio.Task[Segment]]]:
        """Queue everything or nothing; then a task for each segment of each text. Sinks are for a single text."""
        started = [
            [asyncio.create_task(self._segment(text, i, sinks, own)) for i, own in enumerate(of_text)]
            for text, of_text in zip(self.texts, await self._board(sinks), strict=True)
        ]
        self._tasks = [task for of_text in started for task in of_text]
        return started

    async def _board(self, sinks: Sequence[TokenSink]) -> list[list[list[Errand]]]:
        """The errands of each segment of each text, all of them queued."""
        many = sum(len(text.plan.segments) for text in self.texts) > _INLINE_SEGMENTS
        errands = await asyncio.to_thread(self._queue, sinks) if many else self._queue(sinks)
        self._decoder.watch_deadline()
        return errands

    def _queue(self, sinks: Sequence[TokenSink]) -> list[list[list[Errand]]]:
        units = [unit for text in self.texts for segment in text.plan.segments for unit in segment.units]
        self._decoder.num_tokens = sum([len(unit.source_ids) for unit in units])
        errands = [[self._errands(text, i, sinks) for i in range(len(text.plan.segments))] for text in self.texts]
        self._decoder.board([errand for of_text in errands for of_segment in of_text for errand in of_segment])
        return errands

    def close(self) -> None:
        """Give up whatever is still under way."""
        for task in self._tasks:
            task.cancel()
            task.add_done_callback(_look_at)
        self._decoder.close()
        for lease in self._leases:
            lease.end()

    # Segments

    def _errands(self, text: TextWork, index: int, sinks: Sequence[TokenSink]) -> list[Errand]:
        parts = text.plan.segments[index].parts
        return self._decoder.errands(text.planners[0], parts, self._style(text, index, 0, parts, sinks))

    def _style(self, text: TextWork, index: int, hop: int, parts: Plan, sinks: Sequence[TokenSink]) -> Style:
        if hop < len(text.planners) - 1:
            return Style(final=False)
        prefix = self._prefix if self._prefix and index == text.prefixed else None
        if prefix is None and not sinks:
            return PLAIN
        streams = bool(sinks) and beam_size_of(self._options, text.planners[hop]) == 1 and _is_plain(parts)
        listener = sinks[index].listener(text.planners[hop].tokenizer.stream()) if streams else None
        return Style(final=True, prefix=prefix, on_token=listener)

    async def _segment(
        self, text: TextWork, index: int, sinks: Sequence[TokenSink], errands: Sequence[Errand]
    ) -> Segment:
        parts = text.plan.segments[index].parts
        outcome = await self._decoder.collect(parts, errands, self._style(text, index, 0, parts, ()))
        for hop, planner in enumerate(text.planners[1:], 1):
            parts = planner.document(outcome.chunks)
            style = self._style(text, index, hop, parts, sinks)
            outcome = joined(outcome, await self._decoder.follow(planner, parts, style))
        self._timings.append(outcome.timings)
        segment = self._answer(text, index, outcome)
        if self._options.strict:
            _refuse_losses(segment)
        return segment

    def _answer(self, text: TextWork, index: int, outcome: Outcome) -> Segment:
        warnings = (*text.plan.segments[index].warnings, *outcome.warnings)
        empty = not outcome.text.strip() and outcome.finish_reason is FinishReason.EOS
        if empty and SegmentWarning.EMPTY_TRANSLATION not in warnings:
            warnings += (SegmentWarning.EMPTY_TRANSLATION,)
        if changed_numbers(text.plan.split.source(index), outcome.text):
            warnings += (SegmentWarning.NUMBER_CHANGED,)
        if self._prefix and index == text.prefixed and _continues(self._prefix, outcome.text):
            warnings += (SegmentWarning.PREFIX_CONTINUED,)
        return Segment(
            source=text.plan.split.source(index),
            text=outcome.text,
            score=outcome.score,
            finish_reason=outcome.finish_reason,
            num_tokens=outcome.num_tokens,
            warnings=warnings,
            alternatives=outcome.alternatives,
            log_probs=outcome.log_probs if self._options.log_probs else None,
        )

    # The answer

    def result(self, segments: Sequence[Sequence[Segment]]) -> TranslationResult:
        """Raises DeadlineExceeded when time ran out before anything was decoded."""
        every = [segment for of_text in segments for segment in of_text]
        late = [segment for segment in every if segment.finish_reason is FinishReason.DEADLINE]
        if late and not any(segment.num_tokens for segment in every):
            raise DeadlineExceeded("The request's time ran out before its translation began; allow more, or try later.")
        if late and self._options.whole:
            raise DeadlineExceeded("The request's time ran out in mid-translation; allow more, or send less at a time.")
        served = dict.fromkeys([planner.hop.served for text in self.texts for planner in text.planners])
        return TranslationResult(
            tuple([_translation(text, of_text) for text, of_text in zip(self.texts, segments, strict=True)]),
            self._target,
            "+".join([each.bundle.name for each in served]),
            "+".join([each.bundle.version for each in served]),
            longest(self._timings),
        )


def _translation(text: TextWork, segments: Sequence[Segment]) -> Translation:
    whole = text.plan.split.join([segment.text for segment in segments])
    separators = tuple([text.plan.split.separator(index) for index in range(len(segments) + 1)])
    return Translation(whole, text.source, text.pivot, tuple(segments), separators, text.detected)


def _look_at(task: asyncio.Task[Segment]) -> None:
    """A failure that nobody waited for, because another came first, is not worth a line in the log."""
    if not task.cancelled():
        task.exception()


def _is_plain(parts: Plan) -> bool:
    """One unit and no spans: its tokens are its text, and nothing will take them back."""
    return len(parts) == 1 and isinstance(parts[0], Unit) and not parts[0].spans and not parts[0].shouted


def _continues(prefix: str, text: str) -> bool:
    following = text[len(prefix) : len(prefix) + 1]
    return text.startswith(prefix) and prefix[-1].isalnum() and following.isalnum()


def _refuse_losses(segment: Segment) -> None:
    """What `strict` does not accept."""
    if segment.finish_reason is FinishReason.DEADLINE:
        raise DeadlineExceeded("The request's time ran out in mid-translation, and strict accepts no part of one.")
    if segment.finish_reason is not FinishReason.EOS:
        raise StrictRefusal(f"A segment ended by {segment.finish_reason}, and strict accepts only whole translations.")
    if SegmentWarning.PLACEHOLDER_LOST in segment.warnings:
        raise StrictRefusal("A placeholder or glossary term was lost in translation, and strict accepts no loss.")
    if SegmentWarning.EMPTY_TRANSLATION in segment.warnings:
        raise StrictRefusal("The translation of a segment, or of a part of it, is empty, and strict accepts no loss.")
    if SegmentWarning.NUMBER_CHANGED in segment.warnings:
        raise StrictRefusal("A number was changed in translation, and strict accepts no loss.")
