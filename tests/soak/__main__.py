"""The scoring server for a minute under 64 clients, then killed, stopped under load and fed nonsense: `make soak`.

The queue is small enough to fill up. Every score is compared with the offline one; latency is from the first try to the
answer, waiting after a 429 included; memory is the server's resident size 15 s after the clients came and at the end,
the median of five seconds.
"""

import argparse
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import httpx
import numpy as np
from rewardlab.apps import cli
from rewardlab.apps.runs.run_folder import log
from rewardlab.apps.serving.client import ScoringClient
from rewardlab.rm.backbones.loading import small_config, small_tokenizer
from rewardlab.rm.contract.golden_scores import write_golden
from rewardlab.rm.errors import UsageError
from rewardlab.rm.kinds.scalar.model import scalar_from_config
from rewardlab.rm.load import load_reward_model
from rewardlab.rm.types import Example

from tests.run_facts import run_facts
from tests.soak.load import conversations, load

TOLERANCE = 1e-5
"""Of the scores' standard deviation: what a float32 sum differs by in another batch."""
QUEUE = ("--queue_tokens", "12000", "--request_tokens", "6000")


# ---- the server as a process ----


class Served(NamedTuple):
    """A server that has said where it is."""

    process: subprocess.Popen
    url: str


@contextlib.contextmanager
def served(command: Sequence[str], log: Path, seconds: float = 120) -> Iterator[Served]:
    """Start a server and wait for its address; it is killed at the end if it has not ended."""
    with log.open("w") as file:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=file, text=True)
    try:
        until = time.monotonic() + seconds
        while not (found := re.search(r" is at (http://\S+),", log.read_text())):
            if process.poll() is not None or time.monotonic() > until:
                raise UsageError(f"the server did not start: {log.read_text()[-2000:]}")
            time.sleep(0.05)
        yield Served(process, found[1])
    finally:
        process.kill()
        process.wait()


def command(model: str, *flags: str) -> list[str]:
    """`rewardlab serve` with this interpreter."""
    return [sys.executable, "-m", cli.__name__, "serve", model, "--port", "0", *flags]


# ---- stopped and killed ----


def write_model(folder: Path) -> str:
    """A small decoder with random weights, and its golden scores."""
    words = small_tokenizer([example.completion for example in conversations(400, seed=1)], 500)
    model = scalar_from_config(small_config(words, hidden=128, layers=2, heads=2), words, max_length=1024)
    model.save(folder)
    write_golden(model, conversations(8, seed=2), folder)
    return str(folder)


def drained(server: Served, examples: Sequence[Example]) -> dict[str, Any]:
    """SIGTERM while 16 requests are on their way: each of them gets an answer, and the process ends with 0."""
    results: list[int | str] = []
    turns = [one.turns for one in examples[:64]]
    ready = threading.Barrier(17)

    def ask() -> None:
        with httpx.Client(timeout=60, trust_env=False) as http:
            http.get(f"{server.url}/health")
            ready.wait()
            try:
                results.append(http.post(f"{server.url}/score", json={"conversations": turns[:24]}).status_code)
            except httpx.TransportError as error:
                results.append(type(error).__name__)

    threads = [threading.Thread(target=ask, daemon=True) for _ in range(16)]
    for thread in threads:
        thread.start()
    ready.wait()
    time.sleep(0.15)
    started = time.perf_counter()
    server.process.send_signal(signal.SIGTERM)
    code = server.process.wait(60)
    for thread in threads:
        thread.join(60)
    return {
        "requests on their way": dict(Counter(map(str, results))),
        "exit code": code,
        "seconds": time.perf_counter() - started,
    }


def killed(model: str, examples: Sequence[Example], server: Served, log: Path) -> dict[str, Any]:
    """kill -9, and a new server: the largest difference between the scores before and after."""
    with ScoringClient(server.url) as client:
        before = np.concatenate([client.rate([one]) for one in examples[:32]])
    os.kill(server.process.pid, signal.SIGKILL)
    server.process.wait()
    with served(command(model, *QUEUE), log) as again, ScoringClient(again.url) as client:
        after = np.concatenate([client.rate([one]) for one in examples[:32]])
        stopped = drained(again, examples)
    return {"difference after kill -9 and restart": float(np.abs(after - before).max()), "SIGTERM": stopped}


# ---- nonsense ----


def fuzzed(url: str, number: int) -> dict[str, Any]:
    """So many requests that no client would send: statuses, and the slowest answer."""
    from hypothesis import HealthCheck, Phase, given, seed, settings

    from tests.soak.malformed_requests import requests

    statuses: Counter[str] = Counter()
    slowest = 0.0
    http = httpx.Client(timeout=30, trust_env=False)

    @seed(0)
    @settings(
        max_examples=number, deadline=None, database=None, phases=[Phase.generate], suppress_health_check=[*HealthCheck]
    )
    @given(requests())
    def ask(sent: Any) -> None:
        nonlocal slowest
        started = time.perf_counter()
        answer = http.request(
            sent.method, url + sent.path, content=sent.body, headers={"content-type": sent.content_type}
        )
        slowest = max(slowest, time.perf_counter() - started)
        statuses[str(answer.status_code)] += 1

    ask()
    return {"requests": sum(statuses.values()), "statuses": dict(statuses), "slowest (s)": slowest}


# ---- the run ----


def soak(model: str, folder: Path, clients: int, seconds: float, fuzz: int) -> dict[str, Any]:
    """Everything, one after the other."""
    examples = conversations(512)
    offline: Any = load_reward_model(model)
    truth = offline.rate(examples)
    found: dict[str, Any] = {"deviation of the scores": float(truth.std())}
    with served(command(model, *QUEUE), folder / "first.log") as server:
        log(f"{clients} clients for {seconds:g} s at {server.url}")
        found["load"] = load(server.url, examples, truth, clients, seconds, server.process.pid)
        log("killed, started again, stopped under load")
        found["stops"] = killed(model, examples, server, folder / "second.log")
    with served(command(model), folder / "third.log") as server:
        log(f"{fuzz} requests of nonsense")
        found["fuzz"] = fuzzed(server.url, fuzz)
        with ScoringClient(server.url, truncate=True) as client:
            found["fuzz"]["difference afterwards"] = float(np.abs(client.rate(examples[:32]) - truth[:32]).max())
    return found


def faults(found: dict[str, Any]) -> list[str]:
    """What is out of its bounds."""
    load, stops, fuzz = found["load"], found["stops"], found["fuzz"]
    near = TOLERANCE * found["deviation of the scores"]
    on_the_way = stops["SIGTERM"]["requests on their way"]
    checks = {
        "fewer than 90 % of the calls were answered": load["answered within the clients' patience"] >= 0.9,
        "a status other than 200 and 429": set(load["statuses"]) <= {"200", "429"},
        "a score that differs from the offline one": load["largest difference to offline"] <= near,
        "memory that grew by more than 5 %": load["growth"] <= 0.05,
        "another score after kill -9": stops["difference after kill -9 and restart"] == 0,
        "an exit code other than 0 after SIGTERM": stops["SIGTERM"]["exit code"] == 0,
        "a request without an answer after SIGTERM": {*on_the_way} <= {"200", "429", "503"} and "200" in on_the_way,
        "a 5xx for nonsense": not any(status.startswith("5") for status in fuzz["statuses"]),
        "another score after the nonsense": fuzz["difference afterwards"] <= near,
    }
    return [name for name, right in checks.items() if not right]


def table(found: dict[str, Any], title: str = "") -> str:
    """Every figure on a line."""
    lines = []
    for name, value in found.items():
        if isinstance(value, dict):
            lines.append(table(value, f"{title}{name}: "))
        else:
            shown = f"{value:.4g}" if isinstance(value, float) else str(value)
            lines.append(f"| {title}{name} | {shown} |")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table, write the JSON; 1 where a figure is out of its bounds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="folder of a reward model; by default a small one is made")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--fuzz", type=int, default=5000)
    parser.add_argument("--output", type=Path)
    asked = parser.parse_args(argv)
    began = run_facts()
    with TemporaryDirectory() as folder:
        model = asked.model or write_model(Path(folder) / "model")
        found = soak(model, Path(folder), asked.clients, asked.seconds, asked.fuzz)
    found["run"] = began
    found["out of bounds"] = faults(found)
    print(table({name: one for name, one in found.items() if name != "run"}))
    if asked.output:
        asked.output.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    return bool(found["out of bounds"])


if __name__ == "__main__":
    sys.exit(main())
