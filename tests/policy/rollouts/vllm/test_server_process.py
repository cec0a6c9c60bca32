"""A server program of our own starts, is waited for, and is never left behind: not even by a parent that is killed."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import psutil
import pytest
from rewardlab.policy.rollouts.vllm import server_process as kept_server
from rewardlab.policy.rollouts.vllm import watchdog
from rewardlab.policy.rollouts.vllm.server_process import ServerProcess
from rewardlab.rm.errors import DataError

from tests.conftest import PATIENCE

STAND_INS = Path(__file__).resolve().parents[3] / "stand_ins"
SERVER = "vllm.entrypoints.openai.api_server"


@pytest.fixture
def model(tmp_path) -> Path:
    (tmp_path / "config.json").write_text('{"vocab_size": 8, "eos_token_id": 1}')
    (tmp_path / "model.safetensors").write_bytes(weights("a"))
    return tmp_path


@pytest.fixture
def server(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(STAND_INS))
    monkeypatch.setattr(kept_server, "LOOK", 0.05)
    server = ServerProcess(tmp_path / "log", seconds=300)
    yield server
    server.stop()


def weights(name: str) -> bytes:
    """A safetensors file with one empty tensor."""
    head = json.dumps({name: {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}}).encode()
    return len(head).to_bytes(8, "little") + head


def words(model: Path):
    return lambda port: [sys.executable, "-m", SERVER, "--model", model, "--port", port]


def told(log: Path) -> list[dict]:
    return [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]


def gone(pids) -> bool:
    until = time.monotonic() + PATIENCE
    while any(psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie" for pid in pids):
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


def test_it_answers_on_this_machine_and_is_gone_with_its_helpers_when_it_is_stopped(server, model):
    url = server.start(words(model))
    assert url.startswith("http://127.0.0.1:") and httpx.get(f"{url}/v1/models").json()["data"] and server.is_running
    (first,) = told(server.log)
    assert len(first["pids"]) == 2 and all(map(psutil.pid_exists, first["pids"]))
    server.stop()
    assert gone(first["pids"]) and not server.is_running and server.url == ""


def test_a_restart_ends_the_one_before(server, model):
    server.start(words(model))
    (model / "model.safetensors").write_bytes(weights("b"))
    server.start(words(model))
    first, second = told(server.log)
    assert (first["names"], second["names"]) == (["a"], ["b"]) and gone(first["pids"])
    assert all(psutil.pid_exists(pid) for pid in second["pids"])


def test_one_that_ends_before_it_answers_or_never_answers_is_told(server, model, monkeypatch):
    monkeypatch.setenv("FAKE_VLLM", "broken")
    with pytest.raises(DataError, match=r"ended before it answered; .*log ends with: out of order"):
        server.start(words(model))
    assert not server.is_running and server.url == ""
    server.seconds = 0.3
    with pytest.raises(DataError, match="no answer at http://127.0.0.1:.* in 0.3 s"):
        server.start(lambda port: [sys.executable, "-c", "import time; time.sleep(600)"])
    assert not server.is_running


@pytest.mark.slow
@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "ended"])
def test_a_parent_that_is_killed_leaves_nobody_behind(model, script, sign, monkeypatch):
    """The server and its helper, which ignore SIGTERM here, are killed after the watchdog's grace."""
    monkeypatch.setenv("PYTHONPATH", str(STAND_INS))
    monkeypatch.setenv("FAKE_VLLM", "stubborn")
    text = f"""
from pathlib import Path
from rewardlab.policy.rollouts.vllm import server_process as kept_server
server = kept_server.ServerProcess(Path({str(model / "log")!r}), seconds=300)
server.start(lambda port: [sys.executable, "-m", {SERVER!r}, "--model", {str(model)!r}, "--port", port])
print("up", flush=True)
import time; time.sleep(600)
"""
    changed = model / "watchdog.py"
    changed.write_text(Path(watchdog.__file__).read_text().replace("GRACE = 15.0", "GRACE = 0.5"))
    text = text.replace("server = ", f"kept_server.watchdog.__file__ = {str(changed)!r}\nserver = ")
    parent = subprocess.Popen(script(text), stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None and parent.stdout.readline() == "up\n"
    (first,) = told(model / "log")
    assert all(psutil.pid_exists(pid) for pid in first["pids"])
    parent.send_signal(sign)
    parent.wait(PATIENCE)
    assert gone(first["pids"])


def test_the_watchdog_passes_on_how_its_command_ended():
    inner, outer = os.pipe()
    try:
        assert watchdog.watch([sys.executable, "-c", "raise SystemExit(7)"], inner) == 7
        os.close(outer)
        started = time.monotonic()
        assert watchdog.watch([sys.executable, "-c", "import time; time.sleep(600)"], inner) == -signal.SIGTERM
        assert time.monotonic() - started < PATIENCE
    finally:
        os.close(inner)
