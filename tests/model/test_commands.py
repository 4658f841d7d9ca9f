"""Commands without what they need."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "command", ["dragoman.model.commands:train", "dragoman.model.commands:evaluate", "dragoman.export.command:main"]
)
def test_a_command_without_torch_says_what_to_install(command: str) -> None:
    """A server is installed without it, and brings the command all the same."""
    module, _, name = command.partition(":")
    script = f"import sys; sys.modules['torch'] = None\nfrom {module} import {name}; {name}()"
    result = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert result.returncode == 1
    assert result.stderr.strip() == (
        "torch is not installed; training and export need it: pip install 'dragoman[train]'"
    )
