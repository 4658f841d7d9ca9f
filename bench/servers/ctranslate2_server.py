"""The usual design: requests are collected into batches, and a batch is translated as a whole by CTranslate2.

    python -m bench.servers.ctranslate2_server --port 8001 --twin DIR --bundle DIR [--max-texts 32] [--wait-ms 5]

A batch closes when it holds `max-texts` texts or when its first one has waited `wait-ms`. It is translated on a thread
while the next one is being collected; whoever comes meanwhile waits for the whole batch to end.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import typer

from bench.servers.app import BundleFolder, Port, TwinFolder, serve

Translate = Callable[[Sequence[str]], list[str]]
Order = tuple[Sequence[str], "asyncio.Future[list[str]]"]


class Batcher:
    def __init__(self, translate: Translate, max_texts: int, wait_seconds: float) -> None:
        self._translate, self._max_texts, self._wait_seconds = translate, max_texts, wait_seconds
        self._orders: asyncio.Queue[Order] = asyncio.Queue()

    async def translate(self, texts: Sequence[str]) -> list[str]:
        answer: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()
        self._orders.put_nowait((texts, answer))
        return await answer

    async def work(self) -> None:
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1) as thread:
            while True:
                batch = await self._collect()
                texts = [text for wanted, _ in batch for text in wanted]
                found = iter(await loop.run_in_executor(thread, self._translate, texts))
                for wanted, answer in batch:
                    mine = [next(found) for _ in wanted]
                    if not answer.cancelled():
                        answer.set_result(mine)

    async def _collect(self) -> list[Order]:
        batch = [await self._orders.get()]
        closes_at = asyncio.get_running_loop().time() + self._wait_seconds
        while sum(len(wanted) for wanted, _ in batch) < self._max_texts:
            try:
                batch.append(self._orders.get_nowait())
            except asyncio.QueueEmpty:
                try:
                    async with asyncio.timeout_at(closes_at):
                        batch.append(await self._orders.get())
                except TimeoutError:
                    break
        return batch


def main(port: Port, twin: TwinFolder, bundle: BundleFolder, max_texts: int = 32, wait_ms: float = 5.0) -> None:
    serve(port, twin, bundle, lambda twin: Batcher(twin.translate, max_texts, wait_ms / 1000))


if __name__ == "__main__":
    typer.run(main)
