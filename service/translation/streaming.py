"""The tokens of one segment, from the decode thread to the reader of the stream."""

import asyncio
from collections.abc import AsyncIterator, Callable

from dragoman.service.catalog.served import TokenStream


class TokenSink:
    """Made and read on an event loop; its listener may be called on any thread."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._pieces: asyncio.Queue[str | None] = asyncio.Queue()
        self._sent = ""

    def listener(self, decoder: TokenStream) -> Callable[[int, float], None]:
        """What to call with every token."""

        def receive(token_id: int) -> None:
            if piece := decoder.push(token_id):
                self._sent += piece
                self._pieces.put_nowait(piece)

        def listen(token_id: int, log_prob: float) -> None:
            self._loop.call_soon_threadsafe(receive, token_id)

        return listen

    async def pieces(self, segment: asyncio.Task[object]) -> AsyncIterator[str]:
        """Words as they come, until the segment is done."""
        segment.add_done_callback(lambda _: self._pieces.put_nowait(None))
        while (piece := await self._pieces.get()) is not None:
            yield piece

    def rest(self, text: str) -> str:
        """The part of the whole text that has not been sent yet."""
        assert text.startswith(self._sent), "a stream never takes back what it sent"
        return text[len(self._sent) :]
