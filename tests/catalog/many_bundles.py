"""`python -m tests.catalog.many_bundles DIR COUNT`: bundles with different weights, made from the embedded one.

Each copy has some bits of its weights turned and golden sentences of its own, so that it is another network of the same
shape that passes its checks; exporting as many from scratch would take hours. Each serves one made-up language.
"""

import json
import random
import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import onnx

from dragoman.service.assembly import EMBEDDED, OpenSessions
from dragoman.service.bundles.manifest import (
    DECODER,
    ENCODER,
    GOLDEN,
    MANIFEST,
    WEIGHTS,
    Bundle,
    read_bundle,
    read_golden,
    record_file,
)
from dragoman.service.engine.job import DecodingOptions, DecodingRules, FinishReason, Job
from dragoman.service.engine.loop import Engine

FLIPS = 20_000  # of nine million bytes
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def languages(count: int) -> list[str]:
    """Made-up codes that no real language has: `qaa`, `qab`, …"""
    return [f"q{LETTERS[number // 26]}{LETTERS[number % 26]}" for number in range(count)]


def write_many(directory: Path, count: int) -> list[tuple[str, str]]:
    return [write_one(directory, language, seed) for seed, language in enumerate(languages(count))]


def write_one(directory: Path, language: str, seed: int) -> tuple[str, str]:
    path = directory / f"{language}-en"
    shutil.copytree(EMBEDDED / "pt-en", path)
    weights = bytearray((path / WEIGHTS).read_bytes())
    rng, ranges = random.Random(seed), _products(path)
    for start, length in rng.choices(ranges, [length for _, length in ranges], k=FLIPS):
        weights[start + rng.randrange(length)] ^= 1
    (path / WEIGHTS).write_bytes(weights)
    bundle = read_bundle(path, check_hashes=False)
    goldens = "".join(json.dumps(line) + "\n" for line in _goldens(bundle, language))
    (path / GOLDEN).write_text(goldens, "utf-8")
    files = {name: record_file(path / name) for name in bundle.files}
    pairs = (replace(bundle.pairs[0], source=language),)
    made = replace(bundle, name=path.name, version=str(seed + 1), pairs=pairs, files=files)
    (path / MANIFEST).write_text(made.to_json(), "utf-8")
    return language, "en"


def _products(path: Path) -> list[tuple[int, int]]:
    """Where the 8-bit matrices lie in the weights: offset and length. Other tensors are scales and tables."""
    kinds = (onnx.TensorProto.INT8, onnx.TensorProto.UINT8)
    found = set()
    for graph in (ENCODER, DECODER):
        for tensor in onnx.load(path / graph, load_external_data=False).graph.initializer:
            place = {entry.key: entry.value for entry in tensor.external_data}
            if tensor.data_type in kinds and len(tensor.dims) == 2 and "length" in place:
                found.add((int(place.get("offset", 0)), int(place["length"])))
    return sorted(found)


def _goldens(bundle: Bundle, language: str) -> Iterator[dict[str, object]]:
    """The sentences that still end, as this network translates them."""
    engine = Engine(OpenSessions().runners(bundle, 8, 1, reserve=False), DecodingRules.of(bundle))
    for golden in read_golden(bundle)[:4]:
        promise = engine.submit(Job(golden.source_ids, DecodingOptions(log_probs=True)))
        while not promise.done():
            engine.turn()
        result = promise.result()
        if result.finish_reason is FinishReason.EOS:
            best = result.hypotheses[0]
            made = replace(golden, source=language, target_ids=best.ids, log_probs=tuple(best.log_probs))
            yield asdict(made)


if __name__ == "__main__":
    write_many(Path(sys.argv[1]), int(sys.argv[2]))
