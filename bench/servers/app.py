"""The HTTP around a peer's translations: our own native API's request and a plain answer, by FastAPI on uvicorn.

As lean as FastAPI allows: one route, no middleware, no access log, orjson for the answer, uvloop and httptools, which
our server uses too. It answers texts only; ours adds scores, segments, timings and headers, and counts metrics.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Protocol

import orjson
import typer
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
from starlette.responses import Response

from bench.servers.twin import Twin

Port = Annotated[int, typer.Option()]
TwinFolder = Annotated[Path, typer.Option(help="CTranslate2 model")]
BundleFolder = Annotated[Path, typer.Option(help="for its tokenizer")]


class Desk(Protocol):
    """Takes the texts of one request; decides with whom they are translated."""

    async def translate(self, texts: Sequence[str]) -> list[str]: ...

    async def work(self) -> None:
        """Runs beside the server, as long as it does."""


class Question(BaseModel):
    text: str | list[str]
    source: str
    target: str


def make_app(desk: Desk) -> FastAPI:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        worker = asyncio.create_task(desk.work())
        yield
        worker.cancel()

    app = FastAPI(lifespan=lifespan, openapi_url=None)

    @app.post("/v1/translate")
    async def translate(question: Question) -> Response:
        texts = [question.text] if isinstance(question.text, str) else question.text
        answers = [{"text": text} for text in await desk.translate(texts)]
        return Response(orjson.dumps({"translations": answers}), media_type="application/json")

    return app


def serve(port: int, twin: Path, bundle: Path, make_desk: Callable[[Twin], Desk]) -> None:
    app = make_app(make_desk(Twin(twin, bundle)))
    uvicorn.run(app, host="127.0.0.1", port=port, loop="uvloop", http="httptools", access_log=False, log_level="error")
