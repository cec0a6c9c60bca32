"""Completions per second of `rewardlab sample` with a server, beside the server alone.

The server is a simulation with a fixed latency. Alone it gets the same requests from threads that keep their connection
and do nothing with the replies, as many as `sample` has requests in flight. A run of `sample` is complete: prompts,
requests, replies on disk, a reward of one line, selections and tables. Both alternate, and a first pair of few requests
is not counted.
"""

import json
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from ...apps.api import sample
from ...tests.stand_ins.chat_server import ChatServer
from ._scripts import argument_parser, machine, seconds, write
from .policy import ratio

WORDS = "a reply of some length, as a model would give to a question about gardens and what grows in them"


@dataclass(frozen=True)
class Load:
    """Number of prompts and of completions of each, their concurrency and the server's latency."""

    latency: float = 0.5
    """Seconds that the server takes for a reply."""
    in_flight: int = 16
    """Default of `--concurrency`."""
    prompts: int = 100
    n: int = 8
    rounds: int = 8
    """Pairs of runs."""


def completion(request: Mapping[str, Any]) -> str:
    """Return a completion that differs between prompts and seeds."""
    return f"{WORDS}, {request['seed'] % 997}"


def brevity(completions: Sequence[Any]) -> list[float]:
    """Return the negative length of every completion."""
    return [-float(len(str(completion))) for completion in completions]


def request_alone(url: str, load: Load) -> None:
    """Send the requests of a run from threads with a connection each."""
    address = urlsplit(url)
    bodies = iter(
        json.dumps({"model": "m", "messages": [{"role": "user", "content": _prompt(row)}], "seed": number})
        for row in range(load.prompts)
        for number in range(load.n)
    )
    lock = threading.Lock()

    def work() -> None:
        connection = HTTPConnection(address.hostname or "", address.port)
        while True:
            with lock:
                body = next(bodies, None)
            if body is None:
                return connection.close()
            connection.request("POST", f"{address.path}/chat/completions", body, {"Content-Type": "application/json"})
            connection.getresponse().read()

    threads = [threading.Thread(target=work) for _ in range(load.in_flight)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _prompt(row: int) -> str:
    return f"Question {row}: what grows in this garden?"


class Run(NamedTuple):
    """What a run of all requests took."""

    per_second: float
    cpu: float
    """CPU-milliseconds of a completion, the server's included, which the load of other processes hardly affects."""


def measure(load: Load) -> dict[str, Any]:
    """Measure pairs of runs; return completions per second and CPU time of both, and the ratio with its interval."""
    runs: dict[str, list[Run]] = {"sample": [], "server alone": []}
    with ChatServer(latency=load.latency, answer=completion) as server, TemporaryDirectory() as folder:
        for index in range(load.rounds + 1):
            part = load if index else replace(load, prompts=2)
            work = {
                "sample": partial(sample_served, server.url, part, Path(folder) / str(index)),
                "server alone": partial(request_alone, server.url, part),
            }
            for name in sorted(work, reverse=bool(index % 2)):
                began, total = time.process_time(), part.prompts * part.n
                rate = total / seconds(work[name])
                runs[name].append(Run(rate, 1000 * (time.process_time() - began) / total))
    rates = {name: [run.per_second for run in values[1:]] for name, values in runs.items()}
    return {
        "load": asdict(load),
        "machine": machine("cpu", ("openai",)),
        "completions per second": rates,
        "CPU-milliseconds a completion": {name: [run.cpu for run in values[1:]] for name, values in runs.items()},
        "ratio": ratio(rates["sample"], rates["server alone"]),
    }


def sample_served(url: str, load: Load, output: Path) -> None:
    """Run `sample` once."""
    sample(
        [{"prompt": _prompt(row)} for row in range(load.prompts)],
        reward=f"{__name__}:{brevity.__name__}",
        output=output,
        endpoint=url,
        model="m",
        n=load.n,
        concurrency=load.in_flight,
        select=["best", "pairs", "top"],
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print a JSON object."""
    parser = argument_parser(__doc__)
    for name, default in asdict(Load()).items():
        parser.add_argument(f"--{name}", type=type(default), default=default)
    options = vars(parser.parse_args(arguments))
    output = options.pop("output")
    measurements = measure(Load(**options))
    write(measurements, output)
    print(json.dumps({name: measurements[name] for name in ("CPU-milliseconds a completion", "ratio")}))
