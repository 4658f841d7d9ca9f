"""JSON answers are written without Starlette's help, and are what Starlette would have written."""

import numpy as np
import orjson
import pytest
from starlette.responses import Response
from starlette.types import Message

from dragoman.service.api.json_answer import JsonAnswer


async def sent(answer: Response) -> list[Message]:
    messages: list[Message] = []

    async def receive() -> Message:
        raise AssertionError

    async def send(message: Message) -> None:
        messages.append(message)

    await answer({"type": "http"}, receive, send)
    return messages


@pytest.mark.parametrize("media_type", ["application/json", "application/problem+json"])
@pytest.mark.parametrize("content", [{}, {"text": "Até já"}, [1, None]])
async def test_an_answer_is_starlettes(content: object, media_type: str) -> None:
    """Status, headers and body; and headers can be added to both in the same way."""
    ours = JsonAnswer(content, 418, media_type)
    theirs = Response(orjson.dumps(content), 418, media_type=media_type)
    assert await sent(ours) == await sent(theirs)
    for answer in (ours, theirs):
        answer.headers["Retry-After"] = "1"
    assert await sent(ours) == await sent(theirs)


def test_arrays_are_written_as_lists() -> None:
    """Attention is a large array; copying it into lists would take longer than all else."""
    assert JsonAnswer({"row": np.array([0.5, 1.0])}).body == b'{"row":[0.5,1.0]}'
