"""`rewardlab` as processes of their own: started, watched, killed, and what they said.

A program is forked from a process that has imported the libraries and done nothing with them, which saves each of them
ten seconds; its signals, limits, files and end are those of any process.
"""

import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

PATIENCE = 120.0
"""Seconds after which a program that should have ended is killed."""
Hook = Callable[[], None]


class Ended(NamedTuple):
    """How a program ended: its exit code as a shell has it, what it said, and its last line on stdout."""

    code: int
    said: str
    out: str

    def sentence(self, *words: str) -> str:
        """The last line said that has one of the words, or else the last of all."""
        lines = [line for line in self.said.splitlines() if line.strip()]
        return next((line for line in reversed(lines) if any(word in line for word in words)), (lines or [""])[-1])

    @property
    def traceback(self) -> bool:
        """Whether the user had to read one."""
        return "Traceback (most recent call last)" in self.said


class Program:
    """A running one; `hook` is what is done to it before it begins, as its injected fault."""

    def __init__(self, words: Sequence[Any], log: Path, hook: Hook | None = None):
        self.log, self.over = log, None
        log.parent.mkdir(parents=True, exist_ok=True)
        log.touch()
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            _become([str(word) for word in words], log, hook)

    def poll(self) -> int | None:
        """The exit code, 128 + N after signal N; None while it runs."""
        if self.over is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                code = os.waitstatus_to_exitcode(status)
                self.over = code if code >= 0 else 128 - code
        return self.over

    def send(self, number: int) -> None:
        """A signal."""
        os.kill(self.pid, number)

    def until(self, there: Callable[[], Any], seconds: float = PATIENCE) -> bool:
        """Wait until something is there; whether it came before the program ended."""
        end = time.monotonic() + seconds
        while not there():
            if self.poll() is not None or time.monotonic() > end:
                return bool(there())
            time.sleep(0.002)
        return True

    def end(self, seconds: float = PATIENCE) -> Ended:
        """Wait for its end; one that takes too long is killed."""
        limit = time.monotonic() + seconds
        while self.poll() is None:
            if time.monotonic() > limit:
                self.send(signal.SIGKILL)
            time.sleep(0.005)
        out = self.log.with_suffix(".out").read_text(encoding="utf-8").strip()
        return Ended(int(self.over or 0), self.log.read_text(encoding="utf-8"), out.rpartition("\n")[2])

    def kill(self) -> Ended:
        """kill -9."""
        if self.poll() is None:
            self.send(signal.SIGKILL)
        return self.end()


def _become(words: list[str], log: Path, hook: Hook | None) -> None:
    """The child: nothing of the parent's goes on in it."""
    code = 70
    try:
        for number, path in ((1, log.with_suffix(".out")), (2, log)):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
        sys.argv = ["rewardlab", *words]
        if hook is not None:
            hook()
        from rewardlab.apps.cli import main

        code = main(words) if words else 0
    except BaseException:
        import traceback

        traceback.print_exc()
        code = 1
    finally:
        try:
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
        finally:
            os._exit(code)  # whatever happens, the child must not go on as its parent
