"""The native API's bodies as pydantic models: requests are checked with them, and the OpenAPI document shows them.

Limits that depend on settings are checked by the translator.
"""

import math
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.config import JsonDict

from dragoman.service.translation.contract import AUTO, TranslationOptions

# A language code such as `pt` or `pt-BR`.
LanguageCode = Annotated[str, Field(pattern=r"^[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8})*$", max_length=35)]

EXAMPLE_SEGMENT: JsonDict = {
    "source": "O gato dorme.",
    "text": "The cat is sleeping.",
    "score": -0.31,
    "finish_reason": "eos",
    "num_tokens": 6,
    "warnings": [],
    "alternatives": [],
    "log_probs": None,
}
EXAMPLE_RESPONSE: JsonDict = {
    "translations": [
        {"text": "The cat is sleeping.", "source": "pt", "detected": None, "pivot": None, "segments": [EXAMPLE_SEGMENT]}
    ],
    "target": "en",
    "model": {"name": "pt-en", "version": "1"},
    "timings": {"queue_ms": 0.1, "encode_ms": 1.9, "decode_ms": 7.4},
}


class Options(BaseModel):
    """How to decode; other dialects take these as extra fields."""

    beam_size: int | None = Field(
        None, ge=1, le=10_000, description="1 is greedy; 4 is the usual beam; null: what the bundle recommends, often 1"
    )
    length_penalty: float | None = Field(
        None, ge=0, le=10, allow_inf_nan=False, description="Exponent of the length normalization; null: the bundle's"
    )
    n_best: int = Field(1, ge=1, le=10_000, description="How many alternatives to return; at most `beam_size`")
    max_new_tokens: int | None = Field(
        None, ge=1, le=1_000_000, description="Tokens per segment; null: 3 x source + 10"
    )
    target_prefix: str | None = Field(None, description="What the translation must begin with")
    glossary: dict[str, str] = Field(
        default_factory=dict,  # pydantic would deep-copy a default for every request
        description="Term to translation; a term that maps to itself is left as it is",
        json_schema_extra={"default": {}},
    )
    log_probs: bool = Field(False, description="Return the log-probability of each token")
    repetition_guard: bool = Field(True, description="Stop a segment that repeats itself, and say so")
    strict: bool = Field(False, description="Refuse (422) instead of returning a translation that lost something")
    timeout_ms: int | None = Field(None, ge=1, le=86_400_000, description="Deadline; null: the server's")

    @model_validator(mode="after")
    def _n_best_fits(self) -> Self:
        if self.n_best > (self.beam_size or 1):
            told = f"which is {self.beam_size}" if self.beam_size else "which is not given"
            raise ValueError(f"n_best is {self.n_best}, but it can be at most beam_size, {told}")
        return self

    def options(self) -> TranslationOptions:
        return TranslationOptions(
            beam_size=self.beam_size,
            length_penalty=self.length_penalty,
            n_best=self.n_best,
            max_new_tokens=self.max_new_tokens,
            target_prefix=self.target_prefix,
            glossary=self.glossary,
            log_probs=self.log_probs,
            repetition_guard=self.repetition_guard,
            strict=self.strict,
            timeout_seconds=None if self.timeout_ms is None else self.timeout_ms / 1000,
        )


class _Request(Options):
    # Strict: "4" is not a number and 1 is not true. Unknown fields are refused, so that a misspelt one is noticed.
    model_config = ConfigDict(extra="forbid", strict=True)

    source: LanguageCode | Literal["auto"] = Field(AUTO, description="Language of the text, or `auto` to detect it")
    target: LanguageCode = Field(
        description="Language to translate to; `PT` is `pt`, and so is `pt-BR` where no model has the region"
    )


class TranslateRequest(_Request):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"text": "O gato dorme.", "source": "pt", "target": "en"},
                {"text": ["Bom dia, {name}!", "Até já."], "target": "en", "beam_size": 4, "n_best": 2},
            ]
        }
    )

    text: str | Annotated[list[str], Field(min_length=1)] = Field(description="One text, or several")

    @property
    def texts(self) -> list[str]:
        return [self.text] if isinstance(self.text, str) else self.text


class StreamRequest(_Request):
    model_config = ConfigDict(
        json_schema_extra={"examples": [{"text": "O gato dorme. A casa é azul.", "source": "pt", "target": "en"}]}
    )

    text: str = Field(description="One text")


class Alternative(BaseModel):
    text: str
    score: float


class TokenLogProb(BaseModel):
    token: str
    log_prob: float


class Segment(BaseModel):
    source: str = Field(description="The part of the text that this segment translates")
    text: str
    score: float = Field(description="Sum of log-probabilities, normalized by length; not a measure of quality")
    finish_reason: Literal["eos", "length", "repetition", "deadline"] = Field(
        description="How it ended; anything but `eos` means that something may be missing"
    )
    num_tokens: int
    warnings: list[str]
    alternatives: list[Alternative]
    log_probs: list[TokenLogProb] | None


class Detected(BaseModel):
    language: str
    confidence: float = Field(ge=0, le=1)


class Translation(BaseModel):
    text: str
    source: str = Field(description="Language of the text, also where it was detected")
    detected: Detected | None = Field(description="With `source: auto`: the language detected, and the confidence")
    pivot: str | None = Field(description="The language in between, where there is no bundle for the pair itself")
    segments: list[Segment]


class ModelName(BaseModel):
    name: str
    version: str


class Timings(BaseModel):
    """The longest that any segment of the request spent in each stage."""

    queue_ms: float
    encode_ms: float
    decode_ms: float


class TranslateResponse(BaseModel):
    model_config = ConfigDict(json_schema_extra={"examples": [EXAMPLE_RESPONSE]})

    translations: list[Translation]
    target: str = Field(description="The language given: `pt-BR` where `pt-PT` was asked for and only that is there")
    model: ModelName
    timings: Timings


class PairInfo(BaseModel):
    source: str
    target: str


class ModelInfo(BaseModel):
    state: Literal["loaded", "loadable", "failed"] = Field(
        description="In memory; loaded at its first use; or not loaded when it was last tried"
    )
    memory_bytes: int = Field(description="What it takes when it is loaded, as estimated")
    idle_seconds: float | None = Field(description="Since it was last used; null: not yet")
    name: str
    version: str
    precision: str
    pairs: list[PairInfo]
    architecture: dict[str, Any]
    limits: dict[str, int]
    evidence: dict[str, Any] = Field(description="What the export measured: parity with PyTorch, quality by precision")
    training: dict[str, Any] = Field(description="Corpora, licences, steps")


class ModelsResponse(BaseModel):
    models: list[ModelInfo]


class RouteInfo(BaseModel):
    source: str
    target: str
    pivot: str | None


class LanguageInfo(BaseModel):
    code: str
    name: str
    targets: list[str]


class LanguagesResponse(BaseModel):
    languages: list[LanguageInfo]
    pairs: list[RouteInfo]


class Problem(BaseModel):
    """RFC 9457: what went wrong, for people and for programs."""

    type: str = Field(description="urn:dragoman:problem: and the reason")
    title: str
    status: int
    detail: str = Field(description="One sentence that says what to do")
    reason: str = Field(description="The same word as in the metric `dragoman_rejected_total`")
    request_id: str


def finite(value: float) -> float:
    """JSON has no infinity: the score of a hypothesis that the model rules out becomes a very low number."""
    return value if math.isfinite(value) else -1e30
