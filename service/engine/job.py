"""What the engine is asked and what it answers: jobs, options, rules, results and errors.

Plain data, standard library only. `scheduler` queues jobs, `search` decodes them, and `loop` runs them.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import partial
from typing import NamedTuple

from dragoman.service.bundles.manifest import Bundle, Rules
from dragoman.service.engine.promise import Promise


class FinishReason(StrEnum):
    """How a segment ended; every result carries one."""

    EOS = "eos"
    LENGTH = "length"
    REPETITION = "repetition"
    DEADLINE = "deadline"
    CANCELLED = "cancelled"


class QueueFull(Exception):  # noqa: N818 - a state of the queue, not a fault
    """The queue has no room for the job; `retry_after_seconds` says when about half of the queue will be gone."""

    def __init__(self, retry_after_seconds: float) -> None:
        super().__init__(f"The translation queue is full; try again in {retry_after_seconds:.1f} seconds.")
        self.retry_after_seconds = retry_after_seconds


class JobRejected(ValueError):  # noqa: N818 - a state of the job
    """A job that this bundle can never run (too long, too wide a beam); the message says what to change."""


class EngineStopped(RuntimeError):  # noqa: N818 - a state of the engine
    """The engine takes no more jobs, or stopped before this one was done."""


class EngineFailure(RuntimeError):  # noqa: N818 - what happened to the job
    """The runner failed while this job was in its batch; the cause is chained."""


@dataclass(frozen=True)
class DecodingRules(Rules):
    """The rules of a bundle, with what else the search must know of it."""

    max_new_tokens: int = 256  # counts eos and a forced prefix
    bos_id: int = 2
    eos_id: int = 3

    @classmethod
    def of(cls, bundle: Bundle) -> DecodingRules:
        return cls(
            **asdict(bundle.rules),
            max_new_tokens=bundle.limits.max_new_tokens,
            bos_id=bundle.special_ids.bos,
            eos_id=bundle.special_ids.eos,
        )


@dataclass(frozen=True)
class DecodingOptions:
    """How one request wants to be decoded."""

    beam_size: int = 1
    n_best: int = 1
    length_penalty: float | None = None  # alpha for this request; None: the bundle's
    max_new_tokens: int | None = None
    prefix_ids: tuple[int, ...] = ()
    repetition_guard: bool = True
    log_probs: bool = False

    def __post_init__(self) -> None:
        if self.beam_size < 1:
            raise JobRejected(f"beam_size is {self.beam_size}; it must be at least 1.")
        if not 1 <= self.n_best <= self.beam_size:
            raise JobRejected(f"n_best is {self.n_best}; it must be from 1 to beam_size, {self.beam_size}.")
        if self.max_new_tokens is not None and self.max_new_tokens < 1:
            raise JobRejected(f"max_new_tokens is {self.max_new_tokens}; it must be at least 1.")


class Hypothesis(NamedTuple):
    """One translation: token ids without bos and eos, with a forced prefix."""

    ids: tuple[int, ...]
    score: float
    log_probs: tuple[float, ...]  # one per generated token, eos too; empty unless the options ask for them
    finished: bool  # eos ended it, chosen or forced
    finish_reason: FinishReason

    @property
    def num_tokens(self) -> int:
        """Generated tokens, eos counted."""
        return len(self.ids) + self.finished


class DecodingResult(NamedTuple):
    """The answer to a job, best hypothesis first; none when it ended before its first step."""

    hypotheses: tuple[Hypothesis, ...]
    finish_reason: FinishReason
    queue_seconds: float = 0.0
    encode_seconds: float = 0.0
    decode_seconds: float = 0.0
    num_steps: int = 0


class Job:
    """One segment to translate, and the future of its result.

    Jobs with the same `request` have one share of the engine between them. `on_token(id, log_prob)` is called on the
    decode thread for each token as it is chosen, except eos (greedy only: a beam knows no token until it ends).
    Cancelling `future` cancels the job.
    """

    def __init__(
        self,
        source_ids: Sequence[int],
        options: DecodingOptions | None = None,
        request: Hashable | None = None,
        deadline_at: float | None = None,
        on_token: Callable[[int, float], None] | None = None,
    ) -> None:
        self.source_ids = tuple(source_ids)
        self.num_source_tokens = len(self.source_ids)
        self.options = options or DecodingOptions()
        self.request: Hashable = object() if request is None else request
        self.deadline_at = deadline_at
        self.on_token = on_token if self.options.beam_size == 1 else None
        self.future: Promise[DecodingResult] = Promise()
        self.future.add_done_callback(partial(_cancel_with_future, weakref.ref(self)))  # weak: no cycle
        self.cancelled = False
        # Written by the engine.
        self.serial = 0
        self.bulk = False  # of a bulk request: interactive jobs go first
        self.submitted_at = 0.0
        self.admitted_at = 0.0
        self.encoded_at = 0.0
        self.withdraw: Callable[[Job], None] | None = None

    def cancel(self) -> None:
        """Give the job up, from any thread: a queued job ends at once, a running one at the next step."""
        self.cancelled = True
        if self.withdraw is not None:
            self.withdraw(self)


def _cancel_with_future(reference: weakref.ref[Job], future: Promise[DecodingResult]) -> None:
    job = reference()
    if job is not None and future.cancelled():
        job.cancel()


def max_new_tokens_of(job: Job, rules: DecodingRules) -> int:
    """The number of tokens `job` may generate, eos and forced prefix counted."""
    wanted = job.options.max_new_tokens
    if wanted is None:
        wanted = 3 * job.num_source_tokens + 10 + len(job.options.prefix_ids)
    return min(wanted, rules.max_new_tokens)
