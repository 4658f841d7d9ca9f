"""Raw HTTP over a socket, for what a well-behaved client would never send."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from urllib.parse import urlsplit


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> dict:
        return json.loads(self.body)


class Wire:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    @asynccontextmanager
    async def open(cls, url: str) -> AsyncIterator["Wire"]:
        parts = urlsplit(url)
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        try:
            yield cls(reader, writer)
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def post(self, path: str, body: object, *headers: str) -> None:
        content = json.dumps(body).encode()
        lines = [f"POST {path} HTTP/1.1", "Host: test", "Content-Type: application/json", *headers]
        lines.append(f"Content-Length: {len(content)}")
        await self.send("\r\n".join(lines).encode() + b"\r\n\r\n" + content)

    async def answer(self) -> Answer:
        """The next answer; it must have a length, as all but streams have."""
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        status_line, *lines = head.strip().split("\r\n")
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        body = await self._reader.readexactly(int(headers.get("content-length", "0")))
        return Answer(int(status_line.split()[1]), headers, body)

    async def read_until(self, mark: bytes) -> bytes:
        return await self._reader.readuntil(mark)

    async def ended(self) -> bool:
        """Whether the other side closes without another byte."""
        return await self._reader.read(1) == b""
