"""What a bundle's evidence says, in one line for people. A manifest may come from anywhere: anything may be missing."""

from collections.abc import Mapping
from typing import Any


def behaviour_line(evidence: Mapping[str, Any]) -> str:
    """Such as `behaviour 96.3 % of 640, lowest: dates 91 %`; empty where no behaviour was measured."""
    found = evidence.get("behaviour")
    if not isinstance(found, Mapping) or (whole := _percent(found)) is None:
        return ""
    classes = found.get("classes")
    named = {kind: _percent(counts) for kind, counts in classes.items()} if isinstance(classes, Mapping) else {}
    known = [(percent, kind) for kind, percent in named.items() if percent is not None]
    lowest = f", lowest: {min(known)[1]} {min(known)[0]:.0f} %" if known else ""
    return f"behaviour {whole:.1f} % of {found['cases']}{lowest}"


def origin_line(training: Mapping[str, Any]) -> str:
    """Such as `licence MPL-2.0, from mozilla base-memory 3.0, https://…`; empty where the manifest says nothing."""
    found = training.get("origin")
    if isinstance(found, str):
        found = {"address": found, "licence": training.get("licence")}
    if not isinstance(found, Mapping):
        return ""
    registry = " ".join(str(found[key]) for key in ("registry", "architecture", "release") if found.get(key))
    parts = {"licence": found.get("licence"), "from": registry, "": found.get("address")}
    return ", ".join(f"{name} {value}".strip() for name, value in parts.items() if value)


def _percent(counts: object) -> float | None:
    cases, passed = (counts.get(key) if isinstance(counts, Mapping) else None for key in ("cases", "passed"))
    return 100 * passed / cases if type(cases) is int and type(passed) is int and cases > 0 else None
