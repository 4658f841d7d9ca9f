"""An HTTP server with files: ranges, ETags, and faults that a test puts on a path."""

import gzip
import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MODEL = bytes(range(256)) * 400
Fault = Callable[["Answer"], bool]  # True: it has answered


@dataclass
class Answer:
    """One request, and what would be answered to it."""

    handler: BaseHTTPRequestHandler
    body: bytes
    offset: int
    number: int  # of this path, from 0

    def send(self, body: bytes, status: int = 200, length: int | None = None, **headers: str) -> None:
        self.handler.send_response(status)
        self.handler.send_header("Content-Length", str(len(body) if length is None else length))
        self.handler.send_header("Connection", "close")
        for name, value in headers.items():
            self.handler.send_header(name.replace("_", "-"), value)
        self.handler.end_headers()
        self.handler.wfile.write(body)

    def send_range(self, most: int | None = None) -> None:
        """From the asked offset on; `most` bytes of it, although all are promised."""
        rest = self.body[self.offset :]
        headers = {"ETag": etag(self.body)}
        if self.offset:
            headers["Content-Range"] = f"bytes {self.offset}-{len(self.body) - 1}/{len(self.body)}"
        self.send(rest[:most], 206 if self.offset else 200, len(rest), **headers)


@dataclass
class Published:
    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    faults: dict[str, Fault] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)  # path and range of every request

    def put_json(self, path: str, content: Any) -> None:
        self.files[path] = json.dumps(content).encode()

    def times(self, path: str) -> int:
        return sum(asked == path for asked, _ in self.asked)


def etag(body: bytes) -> str:
    return f'"{hashlib.md5(body, usedforsecurity=False).hexdigest()}"'


def sha256(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


@contextmanager
def serving() -> Iterator[Published]:
    published = Published()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Quiet."""

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            wanted = self.headers.get("Range", "")
            number = published.times(path)
            published.asked.append((path, wanted))
            body = published.files.get(path, b"")
            found = re.fullmatch(r"bytes=(\d+)-", wanted)
            offset = int(found[1]) if found and self.headers.get("If-Range") == etag(body) else 0
            answer = Answer(self, body, offset, number)
            fault = published.faults.get(path)
            if fault is not None and fault(answer):
                return
            if path not in published.files:
                answer.send(b"", 404)
            else:
                answer.send_range()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    published.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield published
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def entry(pair: str, model: bytes = MODEL, **changes: Any) -> dict[str, Any]:
    """As in Mozilla's `models.json`."""
    source, target = pair.split("-")
    folder, letters = f"models/{pair}/run/exported", source + target
    return {
        "architecture": "base-memory",
        "releaseStatus": "Release",
        "sourceLanguage": source,
        "targetLanguage": target,
        "files": {
            "model": {
                "path": f"{folder}/model.{letters}.intgemm.alphas.bin.gz",
                "uncompressedSize": len(model),
                "uncompressedHash": sha256(model),
            },
            "lexicalShortlist": {"path": f"{folder}/lex.50.50.{letters}.s2t.bin.gz"},
            "vocab": {"path": f"{folder}/vocab.{letters}.spm.gz"},
        },
        "modelStatistics": {"parameters": 0},
        "metrics": {"flores200-plus": {"bleu": 0}},
        **changes,
    }


def publish_mozilla(published: Published, *pairs: str, model: bytes = MODEL) -> str:
    """A mirror of Mozilla's bucket; gives the path of the first pair's model."""
    models = {pair: [entry(pair, model)] for pair in pairs}
    published.put_json(
        "/db/models.json", {"generated": "now", "baseUrl": "https://elsewhere.invalid", "models": models}
    )
    for entries in models.values():
        for role, file in entries[0]["files"].items():
            content = model if role == "model" else role.encode() * 50
            published.files["/" + file["path"]] = gzip.compress(content, mtime=0)
    return "/" + models[pairs[0]][0]["files"]["model"]["path"]
