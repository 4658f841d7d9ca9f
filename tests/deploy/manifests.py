"""Renders overlays with the real Kustomize, and finds things in what comes out."""

import re
import shutil
import subprocess
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import yaml

KUBERNETES = Path(__file__).parents[2] / "deploy" / "kubernetes"
OVERLAYS = ("cpu", "gpu", "local")
Manifest = dict[str, Any]


def need_kustomize() -> None:
    """Skip where `kubectl` is missing, or its Kustomize is older than what the manifests are written for."""
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")
    answer = subprocess.run(["kubectl", "version", "--client"], capture_output=True, text=True, check=False)
    found = re.search(r"Kustomize Version: v(\d+)", answer.stdout)
    if found is None or int(found[1]) < 5:
        pytest.skip("this kubectl brings no Kustomize 5; 1.27 or later does")


@lru_cache
def render(directory: Path) -> tuple[Manifest, ...]:
    answer = subprocess.run(["kubectl", "kustomize", directory], capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    return tuple(yaml.safe_load_all(answer.stdout))


def render_overlay(name: str) -> tuple[Manifest, ...]:
    return render(KUBERNETES / "overlays" / name)


def of_kind(manifests: tuple[Manifest, ...], kind: str) -> Manifest:
    found = [manifest for manifest in manifests if manifest["kind"] == kind]
    assert len(found) == 1, f"{len(found)} of kind {kind}"
    return found[0]


def pod_of(manifests: tuple[Manifest, ...]) -> Manifest:
    pod: Manifest = of_kind(manifests, "Deployment")["spec"]["template"]["spec"]
    return pod


def server_of(manifests: tuple[Manifest, ...]) -> Manifest:
    (server,) = (each for each in pod_of(manifests)["containers"] if each["name"] == "dragoman")
    assert isinstance(server, dict)
    return server


def variables_of(manifests: tuple[Manifest, ...]) -> dict[str, str]:
    """What the server finds in its environment."""
    own = {variable["name"]: variable["value"] for variable in server_of(manifests).get("env", ())}
    named = {source["configMapRef"]["name"] for source in server_of(manifests)["envFrom"]}
    found = [each for each in manifests if each["kind"] == "ConfigMap" and each["metadata"]["name"] in named]
    return {**{name: value for each in found for name, value in each["data"].items()}, **own}
