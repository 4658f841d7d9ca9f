"""The whole of it, ONNX Runtime included, on a tiny model that was really exported."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import deepl
import httpx
import pytest
from typer.testing import CliRunner

from dragoman.service.assembly import build_parts
from dragoman.service.bundles.manifest import Bundle, read_golden
from dragoman.service.commands.main import cli
from tests.api.conftest import OpenServer, open_http
from tests.api.crowd import Question, ask_alone, ask_in_a_crowd
from tests.bundles.fakes import sentences

PAIR = {"source": "pt", "target": "en"}


@pytest.fixture
def bundles(tiny_bundle: Bundle, tmp_path: Path) -> Path:
    """A directory of our own, which a test may change."""
    shutil.copytree(tiny_bundle.path, tmp_path / "bundles" / "pt-en")
    return tmp_path / "bundles"


def questions() -> list[Question]:
    asked: list[Question] = [{"text": text, **PAIR} for text, _ in sentences()[:40]]
    asked += [{"text": "\n".join(text for text, _ in sentences()[start : start + 6]), **PAIR} for start in (0, 20)]
    return asked + [{"text": text, **PAIR, "beam_size": 4, "n_best": 2} for text, _ in sentences()[40:50]]


async def test_a_crowd_gets_the_bytes_of_the_lonely(open_server: OpenServer, bundles: Path) -> None:
    """The first promise, through HTTP and the real graphs: text and scores, bit for bit, greedy and beam."""
    asked = questions()
    build = partial(build_parts, single_flight=False)
    with open_server(build, bundles=bundles, cache_bytes=0, threads=2) as url:
        expected = await ask_alone(url, asked)
        report = await ask_in_a_crowd(url, asked, expected, 200, lambda report: report.num_answers < 600)
    assert dict(report.statuses) == {200: report.num_answers}
    assert report.num_wrong == 0


def test_golden_sentences_come_out_over_http(open_server: OpenServer, tiny_bundle: Bundle, bundles: Path) -> None:
    """What the exporter proved of this model is what a client gets, token by token."""
    golden = read_golden(tiny_bundle)[0]
    with open_server(build_parts, bundles=bundles) as url:
        asked = {"text": golden.text, **PAIR, "log_probs": True}
        segment = httpx.post(f"{url}/v1/translate", json=asked).json()["translations"][0]["segments"][0]
        translated = deepl.DeepLClient("any", server_url=url).translate_text(golden.text, target_lang="EN-US")
    assert [token["log_prob"] for token in segment["log_probs"]] == pytest.approx(golden.log_probs, abs=1e-3)
    assert translated.text == segment["text"]


@asynccontextmanager
async def dragoman_serve(bundles: Path, **variables: str) -> AsyncIterator[tuple[str, asyncio.subprocess.Process]]:
    command = [
        sys.executable,
        "-m",
        "dragoman.service.commands.main",
        "serve",
        "--port",
        "0",
        "--bundles",
        str(bundles),
    ]
    process = await asyncio.create_subprocess_exec(
        *command, env={**os.environ, **variables}, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        line = await asyncio.wait_for(process.stdout.readline(), 60)
        yield line.decode().split()[-1].replace("localhost", "127.0.0.1"), process
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


async def test_dragoman_serve_from_start_to_exit(bundles: Path) -> None:
    """The command that everybody types: it says where it is, translates, drains, and exits with 0."""
    async with dragoman_serve(bundles, DRAGOMAN_DRAIN_DELAY_SECONDS="0.1") as (url, process), open_http() as client:
        answer = await client.post(f"{url}/v1/translate", json={"text": "O gato dorme.", **PAIR})
        models = await client.get(f"{url}/v1/models")
        process.send_signal(signal.SIGTERM)
        told, logged = await asyncio.wait_for(process.communicate(), 30)
    assert answer.status_code == 200
    assert models.json()["models"][0]["evidence"]
    assert f"{url}/metrics".replace("127.0.0.1", "localhost") in told.decode()
    assert process.returncode == 0
    messages = [json.loads(line)["message"] for line in logged.decode().splitlines()]
    assert [message for message in messages if message in ("bundle loaded", "draining")] == [
        "bundle loaded",
        "draining",
    ]


async def test_dragoman_serve_refuses_a_broken_bundle_in_a_sentence(bundles: Path) -> None:
    """A changed file is not served, and the log says which."""
    weights = bundles / "pt-en" / "weights.bin"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    command = [
        sys.executable,
        "-m",
        "dragoman.service.commands.main",
        "serve",
        "--port",
        "0",
        "--bundles",
        str(bundles),
    ]
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    told, logged = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode not in (0, None)
    assert told == b""
    lines = [json.loads(line) for line in logged.decode().splitlines()]
    assert any("bundle refused" in line["message"] and "weights.bin" in line["message"] for line in lines)
    assert "Traceback" not in logged.decode()


def test_the_doctor_examines_the_bundle(bundles: Path) -> None:
    """What it says is what a server would do: it loads, checks and translates."""
    result = CliRunner().invoke(cli, ["doctor", "--bundles", str(bundles)])
    assert result.exit_code == 0, result.output
    for words in ("CPU", "threads", "runtime", "bundle pt-en", "golden sentences as expected", "tokens per second"):
        assert words in result.output


def test_models_lists_the_bundle(bundles: Path) -> None:
    """Without loading it, so at once."""
    result = CliRunner().invoke(cli, ["models", "--bundles", str(bundles)], env={"COLUMNS": "200"})
    assert result.exit_code == 0
    assert "int8" in result.output
