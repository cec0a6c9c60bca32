"""A local server of OpenAI's chat protocol without a model, which injects faults at a given rate."""

import json
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from threading import Lock, Thread
from typing import Any

from ...judges.backends.cost import letters_as_tokens
from ...rm.types import content_hash

SPOILT = ("cut_off", "off_schema")  # replies that arrive but hold no usable verdict
FAULTS = ("busy", "failing", "hanging", "reset", "half", "garbled", *SPOILT)
REFUSALS = {
    "response_format": "This response_format type is unavailable now",
    "max_tokens": "Unsupported parameter: 'max_tokens' is not supported here. Use 'max_completion_tokens' instead.",
}


def verdict(asked: Mapping[str, Any]) -> str:
    """Return a valid verdict that is a function of the messages.

    >>> verdict({"messages": [{"role": "user", "content": "Which?"}]})
    '{"winner": "B"}'
    """
    return json.dumps({"winner": "AB"[int(content_hash(asked["messages"]), 16) % 2]})


class ChatServer:
    """Serve while the `with` block lasts; `url` is the client's base_url.

    A share `faults` of all attempts fails, in one of `kinds`. Which ones is a function of the seed, the request and the
    number of the attempt, independent of the order of requests.
    """

    def __init__(
        self,
        *,
        faults: float = 0.0,
        kinds: Sequence[str] = FAULTS,
        seed: int = 0,
        latency: float = 0.0,
        hang: float = 5.0,
        retry_after: str = "0.05",
        failure: str = "out of order",
        refuses: Sequence[str] = (),
        key: str = "",
        answer: Callable[[Mapping[str, Any]], str] = verdict,
    ):
        self.faults, self.kinds, self.seed, self.latency, self.hang = faults, tuple(kinds), seed, latency, hang
        self.retry_after, self.failure, self.key, self.answer = retry_after, failure, key, answer
        self.refuses = tuple(refuses)
        self.requests: list[dict[str, Any]] = []
        self.asked: Counter[str] = Counter()
        """Number of attempts by `identity`."""
        self.faulty: Counter[str] = Counter()
        """Number of failed attempts by kind."""
        self.in_flight = self.most_in_flight = 0
        self.lock = Lock()

    def __enter__(self) -> "ChatServer":
        self.http = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"world": self}))
        self.url = f"http://127.0.0.1:{self.http.server_port}/v1"
        Thread(target=self.http.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.http.shutdown()
        self.http.server_close()

    def arrive(self, asked: dict[str, Any]) -> str:
        """Count an attempt, and return the kind of its fault or an empty string."""
        with self.lock:
            self.requests.append(asked)
            name = identity(asked)
            draw = Random(f"{self.seed} {name} {self.asked[name]}")
            self.asked[name] += 1
            self.in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self.in_flight)
            fault = draw.choice(self.kinds) if draw.random() < self.faults else ""
            if fault:
                self.faulty[fault] += 1
        return fault

    def leave(self) -> None:
        """Count the attempt as answered."""
        with self.lock:
            self.in_flight -= 1


def identity(asked: Mapping[str, Any]) -> str:
    """Return a hash of the messages and the seed; requests with equal hashes are the same."""
    return content_hash([list(asked["messages"]), asked.get("seed")])


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore errors of a client that has disconnected, instead of printing a traceback."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    world: ChatServer

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        fault = self.world.arrive(asked)
        time.sleep(self.world.latency)
        self.world.leave()  # before the reply: the client's next request may arrive as soon as it is sent
        if refusal := self._refusal(asked):
            self._send(*refusal)
        else:
            self._meet(fault, asked)

    def _refusal(self, asked: Mapping[str, Any]) -> tuple[int, bytes] | None:
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if self.world.key and token != self.world.key:
            return 401, _error(f"Incorrect API key provided: {token}")
        wrong = [name for name in self.world.refuses if name in asked]
        return (400, _error(REFUSALS[wrong[0]])) if wrong else None

    def _meet(self, fault: str, asked: Mapping[str, Any]) -> None:
        completion = _completion(asked, self.world.answer(asked))
        if fault == "busy":
            self._send(429, _error("slow down"), {"Retry-After": self.world.retry_after})
        elif fault == "failing":
            self._send(500, _error(self.world.failure))
        elif fault == "hanging":
            time.sleep(self.world.hang)
            self.close_connection = True
        elif fault == "reset":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
            self.close_connection = True
        elif fault == "half":
            self._send(200, completion[: len(completion) // 2], {"Content-Length": str(len(completion))})
            self.close_connection = True
        elif fault == "garbled":
            self._send(200, completion[: len(completion) // 2])
        elif fault == "cut_off":
            self._send(200, _completion(asked, self.world.answer(asked)[:8], "length"))
        else:
            self._send(200, _completion(asked, '{"colour": "blue"}') if fault == "off_schema" else completion)

    def _send(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        header_values = {"Content-Type": "application/json", "Content-Length": str(len(body))} | dict(headers or {})
        for name, value in header_values.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def _error(message: str) -> bytes:
    return json.dumps({"error": {"message": message, "type": "error"}}).encode()


def _completion(asked: Mapping[str, Any], text: str, finish: str = "stop") -> bytes:
    prompt = sum(letters_as_tokens(message["content"]) for message in asked["messages"])
    choice = {"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": text}}
    usage = {"prompt_tokens": prompt, "completion_tokens": letters_as_tokens(text)}
    named = {"id": "chat", "object": "chat.completion", "created": 0, "model": asked.get("model", "")}
    return json.dumps(named | {"choices": [choice], "usage": usage}).encode()
