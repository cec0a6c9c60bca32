"""SIGTERM: what is open is closed, and one sentence says how to go on; a second one ends the process at once."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

ENDED = 128 + signal.SIGTERM
"""The exit code."""


class Terminated(KeyboardInterrupt):
    """A SIGTERM; like an interruption from the keyboard nothing takes it for an error."""

    def __init__(
        self, told: str = "ended by SIGTERM; nothing half-written was left, start again with the same command"
    ):
        super().__init__(told)

    def goes_on(self) -> None:
        """What was done so far is kept."""
        if "--resume" not in str(self):
            self.args = ("ended by SIGTERM; what was done is kept, go on with the same command and --resume",)


class Asked:
    """Whether a SIGTERM has come."""

    def __init__(self):
        self.so = False

    def note(self, *_: Any) -> None:
        """Handle the first SIGTERM; the next ends the process at once."""
        self.so = True
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _raise(*_: Any) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    raise Terminated


@contextmanager
def handled(handler: Any) -> Iterator[None]:
    """Only the main thread may say what a signal does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def ended_by_signal() -> Any:
    """Within the block a SIGTERM raises `Terminated`, so that what is open is closed; a second ends at once."""
    return handled(_raise)
