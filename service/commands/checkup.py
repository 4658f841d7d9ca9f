"""What `dragoman doctor` checks: are this machine and this installation fit to serve, and how fast are they?

Each check is a function that returns findings. The last one really loads the bundles, as a server would, so its
findings are what a server will do.
"""

import asyncio
import os
import platform
import resource
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

from dragoman.service.assembly import Parts, build_parts, bundle_roots, num_loops
from dragoman.service.bundles.manifest import MANIFEST, Bundle, BundleError, read_bundle, read_golden
from dragoman.service.catalog.folders import folders_in
from dragoman.service.errors import DragomanError
from dragoman.service.process.cgroup import cpu_quota, throttled_seconds
from dragoman.service.settings import Settings
from dragoman.service.telemetry.metrics import Metrics
from dragoman.service.translation.contract import TranslationOptions

Verdict = Literal["good", "warning", "bad"]
CPU_FEATURES = ("avx2", "avx512f", "avx512_vnni", "avx_vnni", "amx_int8", "asimddp", "i8mm")
INT8_FEATURES = frozenset({"avx2", "avx512_vnni", "avx_vnni", "amx_int8", "asimddp", "i8mm"})
SPEED_SECONDS = 2.0


@dataclass(frozen=True)
class Finding:
    verdict: Verdict
    what: str
    detail: str


def examine(settings: Settings) -> Iterator[Finding]:
    yield cpu()
    yield quota(settings)
    yield from runtime()
    yield from bundles(settings)
    yield from self_test(settings)


def cpu(info: Path = Path("/proc/cpuinfo")) -> Finding:
    lines = info.read_text().splitlines() if info.is_file() else []
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    values = {name.strip().lower(): value.strip() for name, value in fields.items()}
    flags = set(values.get("flags", values.get("features", "")).split())
    features = [feature for feature in CPU_FEATURES if feature in flags]
    name = values.get("model name", platform.machine())
    detail = f"{name}, {os.cpu_count()} cores, {' '.join(features) or 'no vector features found'}"
    return Finding("good" if INT8_FEATURES & set(features) else "warning", "CPU", detail)


def quota(settings: Settings) -> Finding:
    granted, loops = cpu_quota(), num_loops(settings)
    detail = f"{loops} decode loops, " + ("no CPU quota" if granted is None else f"a quota of {granted:g} CPUs")
    throttled = throttled_seconds()
    if throttled:
        detail += f", throttled for {throttled:.1f} s so far"
    if granted is not None and loops > max(1.0, granted):
        return Finding("warning", "threads", f"{detail}: the threads wait for each other; set DRAGOMAN_THREADS lower")
    return Finding("good", "threads", detail)


def runtime() -> Iterator[Finding]:
    installed = {}
    for name in ("onnxruntime", "onnxruntime-gpu"):
        try:
            installed[name] = version(name)
        except PackageNotFoundError:
            continue
    listed = ", ".join(f"{name} {number}" for name, number in installed.items())
    if len(installed) == 2:
        yield Finding(
            "bad", "runtime", f"{listed}: they overwrite each other's files; uninstall both, then install one"
        )
    elif not installed:
        yield Finding("bad", "runtime", "none is installed: run pip install 'dragoman[cpu]' (or [gpu])")
    else:
        yield Finding("good", "runtime", listed)


def find_bundles(settings: Settings) -> list[Path]:
    folders = (path for root in bundle_roots(settings) if root.is_dir() for path in folders_in(root))
    return [path for path in folders if (path / MANIFEST).is_file()]


def bundles(settings: Settings) -> Iterator[Finding]:
    found = find_bundles(settings)
    if not found:
        roots = ", ".join(str(root) for root in bundle_roots(settings))
        yield Finding("bad", "bundles", f"there is none in {roots}: export one, or set DRAGOMAN_BUNDLES")
    for path in found:
        try:
            bundle = read_bundle(path)
        except BundleError as error:
            yield Finding("bad", f"bundle {path.name}", str(error))
        else:
            yield Finding("good", f"bundle {bundle.name}", _describe(bundle))


def _describe(bundle: Bundle) -> str:
    pairs = ", ".join(f"{pair.source} to {pair.target}" for pair in bundle.pairs)
    evidence = ", ".join(f"{name} {value}" for name, value in sorted(bundle.evidence.items()) if _is_short(value))
    return f"version {bundle.version}, {bundle.precision}, {pairs}" + (f"; {evidence}" if evidence else "")


def _is_short(value: object) -> bool:
    return isinstance(value, str | int | float) and len(str(value)) < 40


def self_test(settings: Settings) -> Iterator[Finding]:
    """Load as a server does (hashes, golden sentences), then translate for two seconds."""
    began, began_cpu = time.monotonic(), time.process_time()
    parts = build_parts(settings, Metrics(), time.monotonic)
    try:
        report = parts.catalog.reload()
        for problem in (*report.failed, *report.unlisted):
            yield Finding("bad", "self-test", problem)
        for shadow in report.shadowed:
            yield Finding("warning", "self-test", f"shadowed: {shadow}")
        found = len(report.loaded) + len(report.offered)
        loaded = f"{found} bundles in {time.monotonic() - began:.2f} s"
        if found:
            cpu_seconds = time.process_time() - began_cpu
            yield Finding("good", "self-test", f"{loaded} ({cpu_seconds:.2f} s of CPU), golden sentences as expected")
            yield from _speed(parts)
    finally:
        parts.catalog.close(drain=False)


def _speed(parts: Parts) -> Iterator[Finding]:
    for bundle in parts.catalog.bundles():
        texts = [golden.text for golden in read_golden(bundle)]
        try:
            tokens, seconds = asyncio.run(_translate_for(parts, bundle, texts))
        except DragomanError as error:  # with a bound on memory a bundle is checked at its first use
            yield Finding("bad", f"speed {bundle.name}", error.detail)
            continue
        yield Finding("good", f"speed {bundle.name}", f"about {tokens / seconds:,.0f} target tokens per second")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    yield Finding("good", "memory", f"{peak:,.0f} MB at most")


async def _translate_for(parts: Parts, bundle: Bundle, texts: list[str]) -> tuple[int, float]:
    """Tokens and seconds; every text has its own number, so that neither the cache nor single flight can help."""
    pair = bundle.pairs[0]
    began, tokens, number = time.monotonic(), 0, 0
    while time.monotonic() - began < SPEED_SECONDS:
        batch = [f"{text} {number + place}" for place, text in enumerate(texts * (1 + 64 // len(texts)))]
        number += len(batch)
        result = await parts.translator.translate(batch, pair.source, pair.target, TranslationOptions())
        tokens += sum(segment.num_tokens for text in result.translations for segment in text.segments)
    return tokens, time.monotonic() - began
