"""Watchdog program that ends a command and its child processes when its parent process ends, even if it is killed.

Run as a file: `python watchdog.py COMMAND ...`. Its standard input is a pipe to which nothing is written; the pipe is
closed when the parent ends for any reason. The command runs in its own process group, which is ended as a whole: by
SIGTERM, and after GRACE seconds by SIGKILL. Imports only the standard library.
"""

import contextlib
import os
import select
import signal
import subprocess
import sys
import time

GRACE = 15.0
LOOK = 0.2  # seconds between polls


def watch(command: list[str], parent: int = 0) -> int:
    """Run a command until it ends or the other end of file `parent` is closed; return its exit code."""
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        while child.poll() is None:
            readable, _, _ = select.select([parent], [], [], LOOK)
            if readable and not os.read(parent, 1):
                break
    finally:
        end(child)
    return child.returncode


def end(child: subprocess.Popen, grace: float = GRACE) -> None:
    """End a process group with SIGTERM. Kill its remaining processes after `grace` seconds."""
    send_signal(child.pid, signal.SIGTERM)
    until = time.monotonic() + grace
    while send_signal(child.pid, 0) and time.monotonic() < until:
        child.poll()  # an ended process remains a member of its group until it is waited for
        time.sleep(LOOK / 4)
    send_signal(child.pid, signal.SIGKILL)
    child.wait()


def send_signal(group: int, sign: int) -> bool:
    """Send a signal to a process group; return whether the group exists."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, sign)
        return True
    return False


def _stop(*_: object) -> None:
    raise SystemExit(128 + signal.SIGTERM)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent too, whose end closes the pipe
    sys.exit(watch(sys.argv[1:]))
