"""LibreTranslate's way: one request after another, CTranslate2 inside; nothing is batched but the texts of one request.

python -m bench.servers.one_by_one --port 8002 --twin DIR --bundle DIR
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import typer

from bench.servers.app import BundleFolder, Port, TwinFolder, serve


class OneByOne:
    def __init__(self, translate: Callable[[Sequence[str]], list[str]]) -> None:
        self._translate = translate
        self._thread = ThreadPoolExecutor(1)  # its queue is the line

    async def translate(self, texts: Sequence[str]) -> list[str]:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._translate, texts)

    async def work(self) -> None:
        """Nothing beside the requests themselves."""


def main(port: Port, twin: TwinFolder, bundle: BundleFolder) -> None:
    serve(port, twin, bundle, lambda twin: OneByOne(twin.translate))


if __name__ == "__main__":
    typer.run(main)
