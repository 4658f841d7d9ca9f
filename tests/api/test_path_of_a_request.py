"""How long the path of `POST /v1/translate` is: how deep our calls go, and how many types carry the text.

The whole service but for the network, as in `rooms.py`. Counted by `sys.setprofile`, in the event loop's thread and in
the decode threads.
"""

import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import httpx
import pytest
from pydantic import BaseModel

import dragoman.service
from dragoman.service.app import create_app
from dragoman.service.settings import Settings
from tests.api.rooms import Runners, write_bundles

MAX_DEPTH, MAX_DEPTH_OF_RETRIES = 20, 20
MAX_TYPES = 12
OURS = str(Path(dragoman.service.__file__).parent)
WORD = "jardim"  # in every text: what holds it carries the text

PLAIN = f"O {WORD} da casa é muito grande."
TEXTS = [
    PLAIN,
    f"O gato {{nome}} dorme no {WORD} de https://example.com/a.",
    f"<p>O <b translate='no'>gato</b> <i>dorme</i> no {WORD}&eacute;.</p> R$ 1.250,00 em 10/12/2024.",
    f"Ele viu: 你好 no {WORD} 😀 e _muito bom_. Outra frase em Dezembro.\n- TUDO EM CAPITAIS.",
]


class Watch:
    """Told of every call in every thread; counts while it is on."""

    def __init__(self) -> None:
        self.on = False
        self.deepest: list[str] = []  # file and function of each frame, the innermost first
        self.carriers: set[type] = set()

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if not self.on or event != "call":
            return
        self._note_type(frame)
        if frame.f_code.co_filename.startswith(OURS):
            stack = _our_frames(frame)
            if len(stack) > len(self.deepest):
                self.deepest = stack

    def _note_type(self, frame: FrameType) -> None:
        """A class of ours whose instance is made from the text or its tokens; private ones stay in their file."""
        code, arguments = frame.f_code, frame.f_locals
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        made: type | None = None
        if code.co_name == "__init__" and names:
            made = type(arguments[names[0]])
        elif names[:1] == ("_cls",):  # a NamedTuple
            made = arguments["_cls"]
        if made is not None and _is_on_the_path(made) and any(self._carries(arguments[name]) for name in names[1:]):
            self.carriers.add(made)
        self.carriers |= {type(arguments[n]) for n in names if isinstance(arguments[n], BaseModel)}  # made in Rust

    def _carries(self, value: Any) -> bool:
        if isinstance(value, str):
            return WORD in value
        if type(value) in self.carriers:
            return True
        if isinstance(value, tuple | list):
            is_tokens = len(value) > 4 and all(type(each) is int for each in value)
            return is_tokens or any(map(self._carries, value))
        return False


def _our_frames(frame: FrameType | None) -> list[str]:
    stack: list[str] = []
    while frame is not None:
        if frame.f_code.co_filename.startswith(OURS):
            stack.append(f"{frame.f_code.co_filename[len(OURS) + 1 :]} {frame.f_code.co_qualname}")
        frame = frame.f_back
    return stack


def _is_on_the_path(made: type) -> bool:
    """Inside the engine rows belong to batches; a request knows what it asks of it, and what it answers."""
    module = made.__module__
    in_engine = module.startswith("dragoman.service.engine.") and module != "dragoman.service.engine.job"
    return module.startswith("dragoman.service.") and not in_engine and not made.__name__.startswith("_")


@pytest.fixture
def watch() -> Iterator[Watch]:
    """Set before the app starts its threads, which take it over."""
    watch = Watch()
    threading.setprofile(watch)
    yield watch
    threading.setprofile(None)  # type: ignore[arg-type]


@contextmanager
def watching(watch: Watch) -> Iterator[None]:
    before = sys.getprofile()
    sys.setprofile(watch)
    watch.on = True
    try:
        yield
    finally:
        watch.on = False
        sys.setprofile(before)


@asynccontextmanager
async def open_app(root: Path, kind: str) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(Settings(watch=False, bundles=write_bundles(root, kind)), build=Runners().build)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://test") as client,
    ):
        for _ in range(200):
            if (await client.get("/readyz")).status_code == 200:
                break
        await translate(client, "Bom dia.")  # warm
        yield client


async def translate(client: httpx.AsyncClient, text: str) -> str:
    answer = await client.post("/v1/translate", json={"text": text, "source": "pt", "target": "en"})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["translations"][0]["text"])


@pytest.mark.parametrize(("kind", "most"), [("copy", MAX_DEPTH), ("forget", MAX_DEPTH_OF_RETRIES)])
async def test_the_deepest_stack_of_our_own_frames_is_small(tmp_path: Path, watch: Watch, kind: str, most: int) -> None:
    """Whoever follows a request through a debugger passes each layer, also if placeholders are lost and tried again."""
    async with open_app(tmp_path, kind) as client:
        for text in TEXTS:
            with watching(watch):
                await translate(client, text)
            assert 10 < len(watch.deepest) <= most, "\n".join(watch.deepest)


async def test_few_types_carry_the_text(tmp_path: Path, watch: Watch) -> None:
    """From bytes to bytes: every further type is one more that a reader has to know."""
    async with open_app(tmp_path, "copy") as client:
        with watching(watch):
            assert await translate(client, PLAIN) == PLAIN
    names = sorted(f"{made.__module__.removeprefix('dragoman.service.')}.{made.__name__}" for made in watch.carriers)
    assert {"translation.unit.Unit", "engine.job.Job", "translation.contract.Segment"} <= set(names)
    assert len(names) <= MAX_TYPES, "\n".join(names)
