"""Handling of SIGTERM and Ctrl-C: the first signal ends the process cleanly, the second signal immediately."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

ENDED = 128 + signal.SIGTERM
"""Exit code for both signals."""
SIGNALS = {signal.SIGTERM: "SIGTERM", signal.SIGINT: "Ctrl-C (SIGINT)"}


class Terminated(KeyboardInterrupt):
    """Exception for SIGTERM or Ctrl-C. It is a `KeyboardInterrupt`, so that `except Exception` does not catch it."""

    def __init__(
        self,
        advice: str = "; no partial output was left, start again with the same command",
        sign: int = signal.SIGTERM,
    ):
        self.by = SIGNALS[signal.Signals(sign)]
        super().__init__(f"ended by {self.by}{advice}")

    def mark_resumable(self) -> None:
        """Change the message to say that the run was saved and can be resumed."""
        if "--resume" not in str(self):
            self.args = (f"ended by {self.by}; the progress is saved, go on with the same command and --resume",)


def _raise_terminated(sign: int, *_: Any) -> None:
    restore_handlers()
    raise Terminated(sign=sign)


def restore_handlers() -> None:
    """Restore the default handlers, so that a second signal ends the process immediately."""
    for sign in SIGNALS:
        signal.signal(sign, signal.SIG_DFL)


@contextmanager
def handle_signals(handler: Any) -> Iterator[None]:
    """Install a handler for SIGTERM and Ctrl-C within the block. Do nothing outside of the main thread."""
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
    """Raise `Terminated` on a signal within the block, so that resources are closed. A second signal exits at once."""
    return handle_signals(_raise_terminated)
