"""`POST /v1/explain`: how one segment of a text was translated, from the model that translated it.

What an explanation holds is described in `service.translation.explanations`; this file reads the request, charges for
it and writes the explanation as JSON. It is part of the native dialect.
"""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field
from pydantic.config import JsonDict
from starlette.responses import Response

from dragoman.service.api.api_request import ApiRequest
from dragoman.service.api.connection import while_connected
from dragoman.service.api.dialects import native_schemas
from dragoman.service.api.dialects.native_schemas import LanguageCode, finite
from dragoman.service.api.json_answer import JsonAnswer
from dragoman.service.api.metered import let_in
from dragoman.service.api.problems import TRANSLATION_PROBLEMS, document_problems
from dragoman.service.api.validation import document_body, read_json
from dragoman.service.engine.explainer import BeamTree
from dragoman.service.errors import NotFound
from dragoman.service.translation.contract import AUTO
from dragoman.service.translation.explanations import Explained, ExplainedToken, ExplainOptions, Floats, NumbersOf

router = APIRouter(prefix="/v1", tags=["native"])

EXAMPLE_REQUEST: JsonDict = {"text": "O gato dorme.", "source": "pt", "target": "en", "beam_size": 4}


class Numbers(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    encoder_layer: int = Field(0, ge=0, le=1000)
    decoder_layer: int = Field(0, ge=0, le=1000)
    head: int = Field(0, ge=0, le=1000)


class ExplainRequest(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"examples": [EXAMPLE_REQUEST]})

    text: str = Field(description="One text; one of its segments is explained")
    source: LanguageCode | Literal["auto"] = Field(AUTO, description="Language of the text, or `auto` to detect it")
    target: LanguageCode = Field(description="Language to translate to")
    segment: int = Field(0, ge=0, le=1_000_000, description="Which segment, from 0, as `/v1/translate` numbers them")
    beam_size: int | None = Field(
        None,
        ge=1,
        description="As for the translation; by default as the model recommends; above 1 with the tree",
    )
    runners_up: int = Field(5, ge=0, le=50, description="How many other choices to list for each token")
    self_attention: bool = Field(False, description="Also the attention of encoder and decoder to their own tokens")
    numbers: Numbers | None = Field(None, description="Also the intermediate numbers of one layer and head")


class SourceToken(BaseModel):
    id: int
    text: str


class Choice(SourceToken):
    log_prob: float
    logit: float


class TargetToken(SourceToken):
    log_prob: float = Field(description="As it was decoded")
    log_sum_exp: float = Field(description="Logit minus this is the log-probability")
    choices: list[Choice] = Field(description="The likeliest tokens at this step, best first")


class Node(BaseModel):
    parent: int | None = Field(description="Index of the token before it; the root, which is no token, has none")
    step: int
    token: str
    log_prob: float
    total: float
    state: str = Field(description="root, live, dropped (left the beam), cut (never in it), finished or unfinished")
    hypothesis: int | None = Field(description="Rank of the hypothesis that ends here")


class Hypothesis(BaseModel):
    text: str
    score: float


class Beam(BaseModel):
    num_steps: int
    nodes: list[Node]


class Consistency(BaseModel):
    same_choices: bool = Field(description="The explain graph also ranks every chosen token first (greedy)")
    largest_difference: float = Field(description="Between log-probabilities as decoded and as explained")


class ExplainResponse(BaseModel):
    source_language: str
    segment: int
    num_segments: int
    source: str
    text: str
    finish_reason: str
    retried: bool = Field(description="Placeholders were lost here; the translation was made in another way instead")
    source_tokens: list[SourceToken]
    target_tokens: list[TargetToken]
    cross_attention: list[list[list[list[float]]]] = Field(description="[layer][head][target token][source token]")
    encoder_attention: list[list[list[list[float]]]] | None
    decoder_attention: list[list[list[list[float]]]] | None
    hypotheses: list[Hypothesis] = Field(description="The n-best list, n being the beam size")
    beam: Beam | None
    numbers: dict[str, list[list[float]]] | None
    consistency: Consistency
    architecture: dict[str, Any]
    model: native_schemas.ModelName
    precision: str
    decode_ms: float
    explain_ms: float


@router.post(
    "/explain",
    summary="Show how a segment was translated: tokens, attention, choices, the beam as a tree",
    response_model=ExplainResponse,
    responses=document_problems(*TRANSLATION_PROBLEMS),
    openapi_extra=document_body(ExplainRequest),
)
async def post_explain(request: ApiRequest) -> Response:
    await let_in(request)
    body = read_json(request, ExplainRequest)
    rooms = request.rooms
    if rooms.explanations is None:
        raise NotFound("Explanations are not available on this server.")
    # Not noted as a translation: its time would distort the metric of those.
    request.record.num_characters = len(body.text)
    options = ExplainOptions(
        segment=body.segment,
        beam_size=body.beam_size,
        runners_up=body.runners_up,
        self_attention=body.self_attention,
        numbers=NumbersOf(**body.numbers.model_dump()) if body.numbers else None,
    )
    with rooms.gate.charge(request.key, len(body.text)), while_connected(request.receive):
        explained = await rooms.explanations.explain(body.text, body.source, body.target, options, request.tenant)
    return JsonAnswer(explained_json(explained))


def explained_json(explained: Explained) -> dict[str, Any]:
    tree = explained.tree
    return {
        "source_language": explained.source_language,
        "segment": explained.segment,
        "num_segments": explained.num_segments,
        "source": explained.source,
        "text": explained.text,
        "finish_reason": explained.finish_reason,
        "retried": explained.retried,
        "source_tokens": [{"id": token_id, "text": text} for token_id, text in explained.source_tokens],
        "target_tokens": [_token_json(token) for token in explained.target_tokens],
        "cross_attention": _rounded(explained.cross_attention),
        "encoder_attention": _rounded(explained.encoder_attention),
        "decoder_attention": _rounded(explained.decoder_attention),
        "hypotheses": [{"text": text, "score": finite(score)} for text, score in explained.alternatives],
        "beam": tree and _tree_json(tree, explained.tree_texts),
        "numbers": explained.numbers and _numbers_json(explained.numbers),
        "consistency": {
            "same_choices": explained.same_choices,
            "largest_difference": explained.largest_difference,
        },
        "architecture": explained.architecture,
        "model": {"name": explained.model_name, "version": explained.model_version},
        "precision": explained.precision,
        "decode_ms": round(explained.decode_seconds * 1000, 3),
        "explain_ms": round(explained.explain_seconds * 1000, 3),
    }


def _token_json(token: ExplainedToken) -> dict[str, Any]:
    return {
        "id": token.token_id,
        "text": token.text,
        "log_prob": finite(token.log_prob),
        "log_sum_exp": token.log_sum_exp,
        "choices": [
            {"id": each.token_id, "text": each.text, "log_prob": finite(each.log_prob), "logit": each.logit}
            for each in token.choices
        ],
    }


def _tree_json(tree: BeamTree, texts: tuple[str, ...]) -> dict[str, Any]:
    nodes = [
        {
            "parent": node.parent,
            "step": node.step,
            "token": text,
            "log_prob": finite(node.log_prob),
            "total": finite(node.total),
            "state": node.state,
            "hypothesis": node.hypothesis,
        }
        for node, text in zip(tree.nodes, texts, strict=True)
    ]
    return {"num_steps": tree.num_steps, "nodes": nodes}


def _numbers_json(numbers: Mapping[str, Floats]) -> dict[str, Floats]:
    return {name: np.ascontiguousarray(array) for name, array in numbers.items()}


def _rounded(attention: Floats | None) -> Floats | None:
    """Five digits: rows still sum to 1 within what an eye or a test can see, and half of the bytes."""
    return None if attention is None else np.ascontiguousarray(attention.round(5))
