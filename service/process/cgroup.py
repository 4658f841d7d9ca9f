"""How much CPU the container may use, and for how long it was throttled: cgroup version 2, or 1.

The runtime sizes itself by the machine's cores, which is wrong in a container. The number of decode threads, the
metric of throttling and `dragoman doctor` use these numbers instead.
"""

import math
import os
from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")


def cpu_quota(root: Path = ROOT, membership: Path = MEMBERSHIP) -> float | None:
    """CPUs that the quota grants, such as 1.5; None where there is no quota."""
    for directory in _directories(root, membership):
        limits = _words(directory / "cpu.max")
        if not limits:
            limits = _words(directory / "cpu.cfs_quota_us") + _words(directory / "cpu.cfs_period_us")
        if len(limits) == 2 and limits[0] not in ("max", "-1"):
            return int(limits[0]) / int(limits[1])
    return None


def available_cpus(root: Path = ROOT, membership: Path = MEMBERSHIP) -> int:
    """Threads that can run at one time: what affinity allows, and no more than the quota, rounded up."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = cpu_quota(root, membership)
    return max(1, allowed if quota is None else min(allowed, math.ceil(quota)))


def throttled_seconds(root: Path = ROOT, membership: Path = MEMBERSHIP) -> float | None:
    """Seconds for which the quota stopped the container so far; None where they are not counted."""
    for directory in _directories(root, membership):
        words = _words(directory / "cpu.stat")
        for key, per_second in (("throttled_usec", 1e6), ("throttled_time", 1e9)):  # versions 2 and 1
            if key in words:
                return int(words[words.index(key) + 1]) / per_second
    return None


def _directories(root: Path, membership: Path) -> Iterator[Path]:
    """Where our own group may be: inside a container the root is ours, outside `/proc` says where we are."""
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            yield root / path.lstrip("/")
        elif "cpu" in controllers.split(","):
            yield root / "cpu" / path.lstrip("/")
    yield root
    yield root / "cpu"


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []
