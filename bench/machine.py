"""What a figure was measured on: processor, caches, memory, versions and the commit, as one JSON-able record."""

import importlib.metadata
import platform
import subprocess
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).parents[1]
FLAGS = ("avx2", "avx512f", "avx512_vnni", "avx_vnni", "amx_int8", "avx512_bf16")  # what integer products run on
LIBRARIES = ("onnxruntime", "ctranslate2", "torch", "transformers", "numpy", "fastapi")


def machine() -> dict[str, Any]:
    return {
        **_processor(),
        "cores": psutil.cpu_count(logical=False) or psutil.cpu_count(),
        "threads": psutil.cpu_count(),
        "caches": _caches(),
        "memory_gb": round(psutil.virtual_memory().total / 2**30, 1),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "versions": {name: version for name in LIBRARIES if (version := _version(name))},
        "commit": _git("rev-parse", "--short=12", "HEAD"),
        "dirty": bool(_git("status", "--porcelain", "--untracked-files=no")),
        "load_before": round(psutil.getloadavg()[0], 2),  # of other work: figures taken beside it are not comparable
    }


def _processor() -> dict[str, Any]:
    try:
        text = Path("/proc/cpuinfo").read_text("utf-8")
    except OSError:
        return {"cpu": platform.processor(), "flags": []}
    lines = [line.partition(":") for line in text.splitlines()]
    fields = {name.strip(): value.strip() for name, _, value in reversed(lines)}  # the first processor's stay
    flags = fields.get("flags", "").split()
    return {"cpu": fields.get("model name", platform.processor()), "flags": [f for f in FLAGS if f in flags]}


def _caches() -> dict[str, str]:
    """Sizes of the first core's caches: {"L1 Data": "48K", …}."""
    found = {}
    for folder in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind, size = ((folder / name).read_text("utf-8").strip() for name in ("level", "type", "size"))
        found[f"L{level} {kind}"] = size
    return found


def _version(library: str) -> str | None:
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        return None


def _git(*arguments: str) -> str | None:
    """None outside a repository, where there is no commit to name."""
    try:
        result = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return result.stdout.strip()
