"""SIGTERM and Ctrl-C: what is open is closed, one sentence says how to go on; a second one ends the process at once."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

ENDED = 128 + signal.SIGTERM
"""The exit code, of both."""
SIGNALS = {signal.SIGTERM: "SIGTERM", signal.SIGINT: "Ctrl-C (SIGINT)"}


class Terminated(KeyboardInterrupt):
    """A SIGTERM or a Ctrl-C; nothing takes it for an error."""

    def __init__(
        self,
        advice: str = "; nothing half-written was left, start again with the same command",
        sign: int = signal.SIGTERM,
    ):
        self.by = SIGNALS[signal.Signals(sign)]
        super().__init__(f"ended by {self.by}{advice}")

    def goes_on(self) -> None:
        """What was done so far is kept."""
        if "--resume" not in str(self):
            self.args = (f"ended by {self.by}; what was done is kept, go on with the same command and --resume",)


class Asked:
    """Whether a signal to end has come, and which."""

    def __init__(self):
        self.so = False
        self.sign: int = signal.SIGTERM

    def note(self, sign: int, *_: Any) -> None:
        """Handle the first signal; the next ends the process at once."""
        self.so, self.sign = True, sign
        _end_at_the_next()


def _raise(sign: int, *_: Any) -> None:
    _end_at_the_next()
    raise Terminated(sign=sign)


def _end_at_the_next() -> None:
    for sign in SIGNALS:
        signal.signal(sign, signal.SIG_DFL)


@contextmanager
def handled(handler: Any) -> Iterator[None]:
    """Give both signals to a handler within the block; only the main thread may say what a signal does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {sign: signal.signal(sign, handler) for sign in SIGNALS}
    try:
        yield
    finally:
        for sign, earlier in before.items():
            signal.signal(sign, earlier)


def ended_by_signal() -> Any:
    """Within the block a signal raises `Terminated`, so that what is open is closed; a second ends at once."""
    return handled(_raise)
