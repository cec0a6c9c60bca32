"""vLLM's own server in an environment of its own, for the tests that `make test-vllm` runs."""

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.conftest import need


def vllm_python() -> str:
    """The interpreter that has vLLM; without one the test is skipped."""
    python = os.environ.get("REWARDLAB_VLLM_PYTHON", "")
    need("vllm", bool(python), "there is no vLLM; run make test-vllm")
    return python


@contextmanager
def vllm_server(model: Path, log: Path, *options: str, seconds: int = 300) -> Iterator[str]:
    """The server's address once it answers. Models need heads of 32 or more."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [vllm_python(), "-m", "vllm.entrypoints.openai.api_server", "--model", str(model), "--port", str(port)]
    command += ["--host", "127.0.0.1", "--dtype", "float32", "--enforce-eager", "--gpu-memory-utilization", "0.2"]
    with log.open("w") as lines:
        running = subprocess.Popen(
            [*command, *options],
            stdout=lines,
            stderr=subprocess.STDOUT,
            env=os.environ | {"VLLM_CPU_KVCACHE_SPACE": "1"},
        )
        try:
            url = f"http://127.0.0.1:{port}"
            _wait_for(f"{url}/health", running, log, seconds)
            yield url
        finally:
            running.terminate()
            running.wait(30)


def _wait_for(url: str, running: subprocess.Popen, log: Path, seconds: int) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        assert running.poll() is None, log.read_text()[-3000:]
        try:
            if httpx.get(url, timeout=2).status_code == 200:
                return
        except httpx.HTTPError:
            time.sleep(1)
    pytest.fail(f"vLLM's server did not start in {seconds} s: {log.read_text()[-3000:]}")
