"""Runs a workload on the engine of whatever tree is on the path, and says how many CPU seconds it took.

    PYTHONPATH=NAMES python -P bench/compare_worker.py TREE BUNDLE IDS.json

Started by `bench.compare` once in each tree. For every line on standard input (`greedy`, `beam`, `single`) it answers
one line of JSON. It is given to old trees too, so it uses nothing but what they have all had: reading a bundle,
sessions, a runner, an engine and its jobs. Token ids come from a file: tokenizing is not compared.
"""

import gc
import hashlib
import json
import sys
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

SERVICE = "dragoman.service" if (Path(sys.argv[1]) / "setup.py").exists() else "service"  # as older trees call it


def _of(module: str, *names: str) -> list[Any]:
    found = import_module(f"{SERVICE}.{module}")
    return [getattr(found, name) for name in names]


(read_bundle,) = _of("bundles.manifest", "read_bundle")
DecodingOptions, DecodingRules, Job = _of("engine.job", "DecodingOptions", "DecodingRules", "Job")
(Engine,) = _of("engine.loop", "Engine")
OrtRunner, OrtSessions = _of("engine.runner", "OrtRunner", "OrtSessions")  # where the old trees have both
(EngineSettings,) = _of("engine.scheduler", "EngineSettings")

ROWS = 64
MAX_TOKENS = 128
BEAM_SIZES = {"greedy": 1, "beam": 4, "single": 1}
Ids = tuple[int, ...]


class Workload:
    def __init__(self, bundle_path: Path, sources: Sequence[Sequence[int]]) -> None:
        bundle = read_bundle(bundle_path)
        settings = EngineSettings(max_queued_tokens=1 << 40, interactive_share=0.0)
        runner = OrtRunner(OrtSessions(bundle, threads=1, provider="cpu"), ROWS)
        self._engine = Engine([runner], DecodingRules.of(bundle), settings)
        self._sources = sorted(sources, key=len, reverse=True)

    def run(self, name: str) -> list[Ids]:
        if name == "single":
            few = self._sources[:: max(1, len(self._sources) // 50)]
            return [found for source in few for found in self._translate([source], 1)]
        some = self._sources if name == "greedy" else self._sources[::4]
        return self._translate(some, BEAM_SIZES[name])

    def _translate(self, sources: Sequence[Sequence[int]], beam_size: int) -> list[Ids]:
        options = DecodingOptions(beam_size, max_new_tokens=MAX_TOKENS)
        jobs = [Job(source, options, request="bench") for source in sources]
        self._engine.submit_all(jobs)
        while self._engine.turn():
            pass
        return [job.future.result(0).hypotheses[0].ids for job in jobs]


def main() -> None:
    tree, bundle_path, ids = map(Path, sys.argv[1:4])
    where = import_module(SERVICE).__path__[0]
    assert tree.resolve() in Path(where).resolve().parents, "another tree's service"
    workload = Workload(bundle_path, json.loads(ids.read_text("utf-8")))
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        began = time.process_time()
        found = workload.run(line.strip())
        seconds = time.process_time() - began
        digest = hashlib.sha256(json.dumps(found).encode()).hexdigest()
        print(json.dumps({"seconds": seconds, "sentences": len(found), "digest": digest}), flush=True)


if __name__ == "__main__":
    main()
