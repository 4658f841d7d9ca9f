"""Starts and ends processes for demonstrations and checks: servers, Prometheus, haproxy. All on the loopback."""

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from deploy.demo.load import LOOPBACK

ROOT = Path(__file__).parents[2]
EMBEDDED = ROOT / "service" / "embedded"
START_SECONDS = 60.0
SERVE = ("dragoman.service.commands.main", "serve")


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind((LOOPBACK, 0))
        return int(listener.getsockname()[1])


def missing_tools(*names: str) -> list[str]:
    return [name for name in names if shutil.which(name) is None]


def any_bundles(work: Path) -> Path:
    """The embedded bundles; before there are any, a small untrained one."""
    if any(EMBEDDED.glob("*/bundle.json")):
        return EMBEDDED
    path = work / "bundles"
    if not path.exists():
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        subprocess.run([sys.executable, "-m", "tests.deploy.tiny_bundle", path], cwd=ROOT, env=environment, check=True)
    return path


def start_server(
    port: int, bundles: Path, settings: Mapping[str, str], log: Path, module: Sequence[str] = SERVE
) -> subprocess.Popen[bytes]:
    """`dragoman serve`, as anybody starts it, or another module that takes the same options; returns at once."""
    environment = {**os.environ, "DRAGOMAN_ACCESS_LOG": "false", "DRAGOMAN_WATCH": "false", **settings}
    command = [sys.executable, "-m", *module, "--port", str(port), "--bundles", str(bundles)]
    with log.open("ab") as output:
        return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=output, stderr=output)


def wait_until_answers(url: str, process: subprocess.Popen[bytes], seconds: float = START_SECONDS) -> None:
    ends_at = time.monotonic() + seconds
    while time.monotonic() < ends_at:
        if process.poll() is not None:
            raise RuntimeError(f"{process.args} ended with {process.returncode} before it answered")
        try:
            with urllib.request.urlopen(url, timeout=2):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    raise RuntimeError(f"{url} did not answer within {seconds:.0f} s")


@contextmanager
def ending(process: subprocess.Popen[bytes], seconds: float = 20.0) -> Iterator[subprocess.Popen[bytes]]:
    """Whatever happens inside, the process is gone afterwards."""
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def serving(
    work: Path,
    settings: Mapping[str, str] | None = None,
    bundles: Path | None = None,
    module: Sequence[str] = SERVE,
) -> Iterator[int]:
    """A server that is ready; gives its port."""
    port = free_port()
    chosen = {"DRAGOMAN_DRAIN_DELAY_SECONDS": "0", **(settings or {})}
    server = start_server(port, bundles or any_bundles(work), chosen, work / "server.log", module)
    with ending(server):
        wait_until_answers(f"http://{LOOPBACK}:{port}/readyz", server)
        yield port


@contextmanager
def prometheus(config: Path, work: Path) -> Iterator[str]:
    """A Prometheus with this configuration; gives its address."""
    url = f"{LOOPBACK}:{free_port()}"
    options = [f"--config.file={config}", f"--storage.tsdb.path={work / 'tsdb'}", f"--web.listen-address={url}"]
    with (work / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(["prometheus", *options], stdout=log, stderr=log)
    with ending(process):
        wait_until_answers(f"http://{url}/-/ready", process)
        yield f"http://{url}"
