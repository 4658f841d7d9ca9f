"""What a translation request may ask for, and what its answer carries: plain values without behaviour.

The HTTP routes and the command line make the options and read the answers; `translator.py` does the work.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

from dragoman.service.engine.job import FinishReason
from dragoman.service.translation.spans import Chunk

AUTO = "auto"  # a source language of "auto" means: detect it


class SegmentWarning(StrEnum):
    """What a reader of the segment should know. Every loss has a warning, or a finish reason other than eos."""

    SENTENCE_SPLIT = "sentence_split"  # a part of a sentence that was too long for the model
    PLACEHOLDER_RETRIED = (
        "placeholder_retried"  # lost at first; the text between them was translated in pieces, and all are there
    )
    PLACEHOLDER_LOST = "placeholder_lost"  # an address, a variable or a glossary term is missing or doubled
    UNKNOWN_COPIED = "unknown_characters_copied"  # words in characters that the model does not know were copied
    ALTERNATIVES_DROPPED = "alternatives_dropped"  # fewer than asked for: the others had lost a placeholder
    NUMBER_CHANGED = "number_changed"  # a number of three digits or more is not in the translation, unless in words
    EMPTY_TRANSLATION = "empty_translation"  # the model gave no text for a segment with words
    PREFIX_CONTINUED = "prefix_continued"  # the translation goes on in the last word of the target prefix


class TranslationOptions(NamedTuple):
    beam_size: int | None = None  # None: what the bundle recommends
    length_penalty: float | None = None
    n_best: int = 1
    max_new_tokens: int | None = None
    target_prefix: str | None = None  # begins the first translated segment of each text
    glossary: Mapping[str, str] = MappingProxyType({})  # a term that maps to itself is not translated
    log_probs: bool = False
    repetition_guard: bool = True
    strict: bool = False
    timeout_seconds: float | None = None
    split_sentences: bool = True  # line breaks always separate segments
    whole: bool = False  # refuse a translation that ran out of time, for a caller that cannot be told so


@dataclass(frozen=True)
class TranslationLimits:
    """What one request may ask for. A request for more is refused with 413 or 422 before any work is done."""

    max_texts: int = 1000
    max_characters: int = 1_000_000  # of all texts together
    max_beam_size: int = 8
    max_glossary_terms: int = 1000
    default_timeout_seconds: float | None = None


@dataclass(frozen=True)
class Alternative:
    text: str
    score: float


@dataclass(frozen=True)
class TokenLogProb:
    token: str
    log_prob: float


@dataclass(frozen=True)
class Detection:
    language: str
    confidence: float  # 0..1


class Timings(NamedTuple):
    """The longest that any segment of the request spent in each stage; cached segments spend no time."""

    queue_seconds: float = 0.0
    encode_seconds: float = 0.0
    decode_seconds: float = 0.0


NO_TIME = Timings()


class Segment(NamedTuple):
    source: str
    text: str
    score: float
    finish_reason: FinishReason
    num_tokens: int  # generated, with the end of sentence
    warnings: tuple[SegmentWarning, ...] = ()
    alternatives: tuple[Alternative, ...] = ()  # the others of `n_best`, best first
    log_probs: tuple[TokenLogProb, ...] | None = None
    chunks: tuple[Chunk, ...] = ()  # the text with its spans apart, as a second model in a row reads it
    timings: Timings = NO_TIME


class Translation(NamedTuple):
    text: str
    source: str  # the language, given or detected
    pivot: str | None
    segments: tuple[Segment, ...]
    separators: tuple[str, ...]  # before each segment, and after the last
    detected: Detection | None = None


class TranslationResult(NamedTuple):
    translations: tuple[Translation, ...]
    target: str  # as the bundles write it
    model_name: str
    model_version: str
    timings: Timings


@dataclass(frozen=True)
class TokenEvent:
    """More text. The texts of all token events of a stream, joined, are the translation."""

    segment: int
    text: str


@dataclass(frozen=True)
class SegmentEvent:
    index: int
    segment: Segment


@dataclass(frozen=True)
class DoneEvent:
    result: TranslationResult


StreamEvent = TokenEvent | SegmentEvent | DoneEvent
