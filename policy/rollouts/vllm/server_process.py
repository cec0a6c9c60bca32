"""Server subprocess: started on a free port of this machine, polled until ready, and ended with this process."""

import os
import socket
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import httpx

from ....rm.errors import DataError
from . import watchdog

HOST = "127.0.0.1"
TAIL = 1500  # characters of the log in an error message
LOOK = 0.25  # seconds between requests to /health

Command = Callable[[int], Sequence[str]]
"""Maps a port to the command line that starts a server there."""


class ServerProcess:
    """At most one server on 127.0.0.1 under a watchdog, which stops it when this process ends; output goes to `log`."""

    def __init__(self, log: Path, *, seconds: float = 600.0, environment: Mapping[str, str] | None = None):
        self.log, self.seconds, self.environment = log, seconds, dict(environment or {})
        self.url = ""
        """Address of the running server; empty if there is none."""
        self._running: subprocess.Popen | None = None
        self._end = weakref.finalize(self, lambda: None)

    @property
    def is_running(self) -> bool:
        """Whether the server is running."""
        return self._running is not None and self._running.poll() is None

    def start(self, command: Command) -> str:
        """Stop the previous server, start a new one, wait until its /health returns 200, and return its address."""
        self.stop()
        port = free_port()
        words = [sys.executable, watchdog.__file__, *map(str, command(port))]
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as lines:
            started = lines.tell()
            self._running = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=lines, stderr=subprocess.STDOUT, env=os.environ | self.environment
            )
        self._end = weakref.finalize(self, _end_server, self._running)
        self.url = f"http://{HOST}:{port}"
        try:
            self._wait(started)
        except BaseException:
            self.stop()
            raise
        return self.url

    def stop(self) -> None:
        """Stop the server and all its processes."""
        self._end()
        self._running, self.url = None, ""

    def _wait(self, started: int) -> None:
        """Wait until the server is healthy; raise `DataError` if it ends or takes too long."""
        until = time.monotonic() + self.seconds
        while time.monotonic() < until:
            if not self.is_running:
                raise DataError(f"the server ended before it answered; {self.log} ends with: {self._tail(started)}")
            try:
                if httpx.get(f"{self.url}/health", timeout=2.0, trust_env=False).status_code == 200:
                    return
            except httpx.HTTPError:
                pass
            time.sleep(LOOK)
        raise DataError(f"no answer at {self.url}/health in {self.seconds:g} s; see {self.log}: {self._tail(started)}")

    def _tail(self, started: int) -> str:
        """Return the end of the log since the start of the server."""
        with self.log.open("rb") as lines:
            lines.seek(started)
            return lines.read().decode(errors="replace")[-TAIL:].strip()


def _end_server(running: subprocess.Popen) -> None:
    """Close the watchdog's standard input, which makes it end the server, and wait for the watchdog."""
    if running.stdin is not None:
        running.stdin.close()
    running.wait()


def free_port() -> int:
    """Return a port on which no server is listening."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return probe.getsockname()[1]
