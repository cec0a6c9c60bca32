"""Replies per second with many concurrent requests, compared with one at a time.

The server is a simulation with a fixed latency and no faults; the client and its waiting are measured.
"""

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from tempfile import TemporaryDirectory
from typing import Any

from ...judges.backends.chat import Ask, Chat, Reply
from ...judges.backends.openai_endpoint import Endpoint
from ...judges.store import StoredReplies
from ...rm.types import user_turn
from ...tests.stand_ins.chat_server import ChatServer
from ._scripts import argument_parser, seconds, write


@dataclass(frozen=True)
class Load:
    """Number of requests, their concurrency and the server's latency."""

    latency: float = 0.5
    """Seconds that the server takes for a reply."""
    in_flight: int = 64
    asks: int = 1280
    alone: int = 20
    """Requests of the run with one at a time."""


def questions(number: int) -> list[Ask]:
    """Generate `number` different requests."""
    return [Ask(user_turn(f"Question {index}: which of the two answers is better?")) for index in range(number)]


def per_second(chat: Chat, asks: Sequence[Ask]) -> float:
    """Return the replies per second; raise RuntimeError if a request failed."""
    replies: list[Reply] = []
    took = seconds(lambda: replies.extend(chat.ask(asks)))
    failures = [reply.error for reply in replies if reply.error]
    if failures:
        raise RuntimeError(f"{len(failures)} of {len(asks)} asks failed, the first with: {failures[0]}")
    return len(asks) / took


def speedup(load: Load) -> dict[str, Any]:
    """Measure one request at a time, many at once, and many at once with replies stored on disk."""
    with ChatServer(latency=load.latency) as server, TemporaryDirectory() as folder:
        many = questions(load.asks)
        Endpoint("judge", server.url).ask(many[:1])  # imports and first connections
        rates = {
            "one at a time": per_second(Endpoint("judge", server.url, concurrency=1), many[: load.alone]),
            "in flight": per_second(Endpoint("judge", server.url, concurrency=load.in_flight), many),
            "in flight, kept": per_second(
                StoredReplies(Endpoint("judge", server.url, concurrency=load.in_flight), folder), many
            ),
        }
        most = server.most_in_flight
    return {
        "load": asdict(load),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
        "openai": version("openai"),
        "most in flight": most,
        "replies per second": rates,
        "speed-up": {name: rate / rates["one at a time"] for name, rate in rates.items()},
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print a JSON object."""
    parser = argument_parser(__doc__)
    for name, default in asdict(Load()).items():
        parser.add_argument(f"--{name}", type=type(default), default=default)
    options = vars(parser.parse_args(arguments))
    output = options.pop("output")
    measurements = speedup(Load(**options))
    write(measurements, output)
    print(json.dumps(measurements, indent=2))
