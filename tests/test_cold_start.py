"""What a server leaves out while it starts: nothing that anybody could miss."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
COLLECTED = """
import gc
from dragoman.service.process import interpreter
with interpreter.serving():
    print(gc.isenabled())
    interpreter.settle()
    print(gc.isenabled(), gc.get_freeze_count() > 0)
try:
    with interpreter.serving():
        raise SystemExit
except SystemExit:
    print(gc.isenabled())
"""


def run(code: str) -> str:
    """In an interpreter of its own: what is imported, and how, shows only once."""
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_serving_imports_nothing_that_only_people_see() -> None:
    """Tables and progress bars belong to other commands, and each import is time until the first translation."""
    modules = ("commands.main", "app", "process.server", "engine.runner")
    code = f"import sys, {', '.join(f'dragoman.service.{name}' for name in modules)}; print(sorted(sys.modules))"
    others = ("checkup", "translate_lines", "translate_streams")
    unwanted = {"rich", "httpx", *(f"dragoman.service.commands.{name}" for name in others)}
    assert not unwanted & set(run(code).split("'"))


def test_listing_the_commands_imports_none_of_what_they_need() -> None:
    """`dragoman keys` and `dragoman --help` wait for no network, no web framework and no settings."""
    imported = set(run("import sys, dragoman.service.commands.main; print(sorted(sys.modules))").split("'"))
    assert not {"numpy", "pydantic", "fastapi", "uvicorn", "onnxruntime", "rich"} & imported
    assert {name for name in imported if name.startswith("dragoman.service.")} == {
        "dragoman.service.commands",
        *(f"dragoman.service.commands.{name}" for name in ("configuration", "doctor", "keys", "main", "models")),
        *(f"dragoman.service.commands.{name}" for name in ("pull", "serve", "translate")),
    }


def test_garbage_is_collected_again_once_the_server_has_settled() -> None:
    """A server that forgot to switch it on again would grow until it is killed."""
    assert run(COLLECTED).split() == ["False", "True", "True", "True"]
