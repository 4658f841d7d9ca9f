"""The house rules that a reader relies on: which room may import which, and one home per library."""

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

# of service/, what stands above the engine: bundles <- engine <- catalog <- translation <- api

# package or room -> what it must never import
FORBIDDEN = {
    "service": ("torch", "onnx", "dragoman.model", "dragoman.export", "tests", "bench"),
    "model": ("dragoman.service", "dragoman.export", "tests", "bench", "onnxruntime", "fastapi"),
    "export": ("fastapi", "uvicorn", "prometheus_client", "tests", "bench"),
    "service/engine": ("fastapi", "asyncio", "pydantic"),
    "service/bundles": ("fastapi", "asyncio", "pydantic", "numpy"),
    "service/catalog": ("fastapi", "asyncio", "pydantic"),
    "service/translation": ("fastapi", "prometheus_client", "pydantic"),
}

# room or module of service -> the rooms and modules of service that it may import. There are no exceptions: what a room
# needs from a room above it is passed in by `assembly` or `app`. Rooms that are not built yet have their line, too.
DOMAIN = ("bundles", "engine", "catalog", "translation")
EDGE = (*DOMAIN, "documents", "storage", "telemetry", "errors", "settings", "language_codes")
MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "errors": (),
    "language_codes": (),
    "settings": (),
    "bundles": (),
    "engine": ("bundles",),
    "catalog": ("bundles", "engine", "language_codes"),
    "translation": (*DOMAIN, "errors", "language_codes"),
    "documents": (*DOMAIN, "errors"),
    "storage": ("errors",),
    "telemetry": ("engine", "errors"),  # the rooms of DOMAIN know it only by their own protocols
    "api": EDGE,
    "process": (*EDGE, "api"),
    "assembly": (*EDGE, "process"),
    "app": (*EDGE, "api", "process", "assembly"),
    "commands": (*EDGE, "api", "process", "assembly", "app"),
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
    **{
        f"service/engine/{name}.py": ("threading", "asyncio", "time", "os", "socket", "onnxruntime")
        for name in ("active_job", "beam", "heartbeat", "hypotheses", "rows", "search", "slots", "token_choice")
    },
    "service/bundles/manifest.py": ("numpy", "onnxruntime", "pydantic"),
    "service/bundles/format_1.py": ("numpy", "onnxruntime", "pydantic"),
    "service/bundles/sections.py": ("numpy", "onnxruntime", "pydantic"),
    "export/behaviour.py": ("torch", "onnx", "onnxruntime", "numpy", "dragoman.model", "dragoman.service"),
}


def python_files(folder: str) -> Iterator[Path]:
    yield from sorted((ROOT / folder).rglob("*.py"))


def imports(path: Path, for_types: bool = False) -> set[str]:
    """Every module that a file imports, functions included; with `for_types` also what only a type checker reads."""
    names: set[str] = set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    skipped = (
        set()
        if for_types
        else {
            inner
            for node in ast.walk(tree)
            if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
            for inner in ast.walk(node)
        }
    )
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
def test_rooms_do_without(folder: str) -> None:
    """Training and serving share files, not code; and policy needs no web framework."""
    wrong = [
        f"{path.relative_to(ROOT)} imports {module}"
        for path in python_files(folder)
        for module in FORBIDDEN[folder]
        if touches(imports(path), module)
    ]
    assert not wrong


def room_of(path: Path) -> str:
    """The room of a file of service/, or the module that lies beside the rooms."""
    return path.relative_to(ROOT / "service").with_suffix("").parts[0]


def test_imports_go_one_way() -> None:
    """bundles <- engine <- catalog <- translation <- api <- app; a reader who goes down never has to go up again."""
    wrong = []
    for path in python_files("service"):
        room = room_of(path)
        for name in imports(path, for_types=True):
            other = name.removeprefix("dragoman.service.").partition(".")[0]
            if name.startswith("dragoman.service.") and other not in (room, *MAY_IMPORT.get(room, ())):
                wrong.append(f"{path.relative_to(ROOT)} imports {name}")
    assert not wrong


def test_every_room_has_its_line_in_the_table() -> None:
    """A new room says what it may import before it imports anything; and the table itself has no cycle."""
    assert {room_of(path) for path in python_files("service")} - {"__init__"} <= set(MAY_IMPORT)
    seen: set[str] = set()
    while left := set(MAY_IMPORT) - seen:
        free = {room for room in left if set(MAY_IMPORT[room]) - {room} <= seen}
        assert free, f"a cycle among {sorted(left)}"
        seen |= free


def test_only_assembly_builds_a_translator() -> None:
    """The server, the doctor and the command line translate with the same parts."""
    for path in python_files("service"):
        calls = [node.func for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Call)]
        built = {call.id for call in calls if isinstance(call, ast.Name)} & {"Catalog", "SegmentCache", "Translator"}
        assert not built or path.name == "assembly.py", f"{path.relative_to(ROOT)} builds {built}"


def test_export_takes_little_from_service() -> None:
    """The consumer owns the format. One file of the exporter asks a finished bundle as a user does: by all of it."""
    allowed = ("dragoman.service.bundles.manifest", "dragoman.service.engine", "dragoman.service.translation.tokenizer")
    for path in python_files("export"):
        if path.name == "served_answers.py":
            continue
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


def test_commands_have_one_parser_library() -> None:
    """Every command reads and refuses its words alike."""
    for folder in (*PACKAGES, "bench"):
        for path in python_files(folder):
            assert not touches(imports(path), "argparse"), f"{path.relative_to(ROOT)} reads its words with argparse"


def test_one_file_of_service_finds_the_exporter_by_its_name() -> None:
    """An import by name is an import: `dragoman pull` has the only one, and works without it until it is called."""
    named = [path.name for path in python_files("service") if '"dragoman.export' in path.read_text("utf-8")]
    assert named == ["pull.py"]


def test_pulling_needs_neither_torch_nor_onnx() -> None:
    """Registries and downloads say what is wrong before anything heavy is imported; importers come later."""
    code = (
        "import sys, dragoman.export.pulling.pull_command; "
        "print([m for m in ('torch', 'onnx', 'huggingface_hub', 'dragoman.model') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_behavioural_cases_are_judged_without_torch() -> None:
    """Another program, such as a check of a running server, can judge the same cases."""
    code = "import sys, dragoman.export.behaviour; print('torch' in sys.modules or 'onnxruntime' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False"


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


@pytest.mark.parametrize("room", ["service/engine", "service/bundles"])
def test_a_file_name_is_used_once(room: str) -> None:
    """Whoever is told a file name finds one file."""
    names = [path.name for package in ("service", "export") for path in python_files(package)]
    own = {path.name for path in python_files(room)} - {"__init__.py"}
    assert [name for name in sorted(own) if names.count(name) > 1] == []


def test_the_runner_knows_no_kind_of_model() -> None:
    """It knows state tensors by what the bundle says of them; their names belong to the exporter."""
    for name in ("runner", "state", "sessions"):
        text = (ROOT / "service" / "engine" / f"{name}.py").read_text("utf-8")
        assert not [word for word in ("cross_", "self_k", "self_v", "last_k", "architecture.norm") if word in text]


def test_no_file_of_export_is_named_like_one_of_service() -> None:
    """A name that is said or searched for means one file."""
    exported, served = (
        {path.name for path in python_files(folder)} - {"__init__.py"} for folder in ("export", "service")
    )
    assert not exported & served


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


def private_parts(path: Path) -> Iterator[str]:
    """Attributes with a leading underscore of anything but oneself; a named tuple's `_replace` is public."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
            owner = ast.unparse(node.value)
            if owner not in ("self", "cls", "super()") and node.attr not in ("_replace", "_asdict", "_fields"):
                yield f"{owner}.{node.attr}"


# file -> what it may use although its owner does not promise it; a test fails when any of it changes
PRIVATE_PARTS = {
    "service/api/connection.py": {"waits_for._asyncio_future_blocking"},
    "service/process/server.py": {"os._exit"},  # documented by Python; the underscore is only a name
}


def test_foreign_private_parts_stand_in_one_file() -> None:
    """uvicorn and Starlette may change them in any release; who updates has one file to read."""
    home = "service/process/http_protocol.py"
    for path in (*python_files("service/api"), *python_files("service/process"), ROOT / "service/app.py"):
        name = str(path.relative_to(ROOT))
        assert set(private_parts(path)) <= PRIVATE_PARTS.get(name, set()), name
        inside = {module for module in imports(path) if module.startswith(("uvicorn.", "starlette._"))}
        assert name == home or not inside, name


def test_only_the_app_knows_the_dialects_by_name() -> None:
    """A new dialect is one file and one word in `app.py`."""
    names = {path.stem for path in python_files("service/api/dialects")} - {"__init__"}
    for path in python_files("service"):
        shared = (
            "dragoman.service.api.dialects.base",
            "dragoman.service.api.dialects.native_schemas",
        )  # of all dialects
        known = {module for module in imports(path) if module.startswith("dragoman.service.api.dialects.")}
        known = {module for module in known if not module.startswith(shared)}
        if path != ROOT / "service/app.py" and path.parent != ROOT / "service/api/dialects":
            assert not known, path
    assert {"native", "deepl", "libretranslate", "kserve", "operations"} <= names
