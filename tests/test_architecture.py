"""The house rules that a reader relies on: who may import whom, and one home per library."""

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("service", "export", "model")

# package or room -> what it must never import
FORBIDDEN = {
    "service": ("torch", "onnx", "dragoman.model", "dragoman.export", "tests", "bench"),
    "model": ("dragoman.service", "dragoman.export", "tests", "bench", "onnxruntime", "fastapi"),
    "export": ("fastapi", "uvicorn", "prometheus_client", "tests", "bench"),
    "service/engine": (
        "dragoman.service.api",
        "dragoman.service.translation",
        "dragoman.service.app",
        "fastapi",
        "asyncio",
        "pydantic",
    ),
    "service/bundles": ("dragoman.service.api", "dragoman.service.app", "fastapi"),
    "service/translation": ("dragoman.service.api", "dragoman.service.app", "fastapi", "prometheus_client"),
}

# library -> the only files of service/ that may import it
HOMES = {
    "onnxruntime": ("service/engine/sessions.py", "service/engine/state.py", "service/engine/runner.py"),
    "prometheus_client": ("service/telemetry/metrics.py",),
    "sentencepiece": ("service/translation/tokenizer.py",),
    "sentencex": ("service/translation/segments.py",),
    "py3langid": ("service/translation/language.py",),
    "fastapi": ("service/app.py", "service/api/"),
}

# pure policy: no threads, no clock, no input or output
PURE = {
    "service/engine/scheduler.py": ("threading", "asyncio", "time", "os", "socket"),
    "service/engine/search.py": ("threading", "asyncio", "time", "os", "socket"),
    "service/bundles/manifest.py": ("numpy", "onnxruntime", "pydantic"),
}


def python_files(folder: str) -> Iterator[Path]:
    yield from sorted((ROOT / folder).rglob("*.py"))


def imports(path: Path) -> set[str]:
    """Every module that a file imports, functions included; type-checking blocks do not run and do not count."""
    names: set[str] = set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    skipped = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def touches(names: set[str], module: str) -> bool:
    return any(name == module or name.startswith(module + ".") for name in names)


@pytest.mark.parametrize("folder", FORBIDDEN)
def test_rooms_do_not_reach_upwards(folder: str) -> None:
    """Train and serve share files, not code; the path of a request goes one way."""
    wrong = [
        f"{path.relative_to(ROOT)} imports {module}"
        for path in python_files(folder)
        for module in FORBIDDEN[folder]
        if touches(imports(path), module)
    ]
    assert not wrong


def test_export_takes_only_the_manifest_from_service() -> None:
    """The consumer owns the format; the exporter verifies with the consumer's own runner."""
    allowed = ("dragoman.service.bundles.manifest", "dragoman.service.engine", "dragoman.service.translation.tokenizer")
    for path in python_files("export"):
        for name in imports(path):
            if name.startswith("dragoman.service."):
                assert name == "dragoman.service.bundles" or name.startswith(allowed), f"{path.name} imports {name}"


@pytest.mark.parametrize("library", HOMES)
def test_a_library_has_one_home(library: str) -> None:
    """Whoever replaces a library has one file to read."""
    users = [str(p.relative_to(ROOT)) for p in python_files("service") if touches(imports(p), library)]
    assert [user for user in users if not user.startswith(HOMES[library])] == []


@pytest.mark.parametrize("file", PURE)
def test_policy_is_pure(file: str) -> None:
    """What decides can be tested with numbers alone."""
    assert [module for module in PURE[file] if touches(imports(ROOT / file), module)] == []


def test_importing_the_app_leaves_torch_out() -> None:
    """A serving image has no torch; importing it by accident would only show there."""
    code = (
        "import sys, dragoman.service.app, dragoman.service.commands.main; "
        "print([m for m in ('torch', 'onnx', 'dragoman.model') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_folders_are_imported_by_their_installed_names() -> None:
    """From the repository's root `import service` works too: a second copy of every module, with state of its own."""
    for folder in (*PACKAGES, "tests", "bench", "deploy", "docs"):
        for path in python_files(folder):
            wrong = [name for name in imports(path) if name.split(".")[0] in PACKAGES]
            assert not wrong, f"{path.relative_to(ROOT)} imports {wrong}"


def test_no_file_is_named_for_nothing() -> None:
    """A name says what is inside."""
    vague = {"utils", "util", "helpers", "helper", "common", "manager", "core", "misc"}
    for package in PACKAGES:
        for path in python_files(package):
            assert not vague & set(path.relative_to(ROOT).with_suffix("").parts), path


def test_a_file_name_of_translation_means_one_file() -> None:
    """Who is told to open `decode.py` has no choice to make."""
    names = Counter(path.name for folder in ("service", "export") for path in python_files(folder))
    shared = [path.name for path in python_files("service/translation") if names[path.name] > 1]
    assert [name for name in shared if name != "__init__.py"] == []


def test_what_a_kind_of_span_does_is_an_attribute_of_the_kind() -> None:
    """A set of kinds in another file is overlooked by whoever adds a kind."""
    for path in python_files("service"):
        if path.name != "spans.py":
            found = re.search(r"[({\[]\s*SpanKind\.\w+,\s*SpanKind\.", path.read_text(encoding="utf-8"))
            assert found is None, path.relative_to(ROOT)


def test_functions_are_short() -> None:
    """None over 60 lines, nine of ten under 25."""
    lengths = []
    for package in PACKAGES:
        for path in python_files(package):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    length = (node.end_lineno or node.lineno) - node.lineno + 1
                    assert length <= 60, f"{path.relative_to(ROOT)}:{node.lineno} {node.name} has {length} lines"
                    lengths.append(length)
    assert sorted(lengths)[int(len(lengths) * 0.9)] <= 25


@pytest.mark.parametrize("package", PACKAGES)
def test_every_module_says_its_job(package: str) -> None:
    """The first line of a file is its purpose."""
    for path in python_files(package):
        assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))), path
