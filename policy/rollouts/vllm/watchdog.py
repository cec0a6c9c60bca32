"""A program that ends with its parent process, with all of its own processes: even a killed parent leaves no orphan.

Run as a file: `python watchdog.py COMMAND ...`. Its standard input is a pipe without a writer; it ends when the
parent does, however that came about. The command has a process group of its own, which is ended as a whole: asked first
(SIGTERM), and after GRACE seconds killed. Nothing but the standard library is imported.
"""

import contextlib
import os
import select
import signal
import subprocess
import sys
import time

GRACE = 15.0
LOOK = 0.2  # seconds between two looks


def watch(command: list[str], parent: int = 0) -> int:
    """Run a command until it ends or until the other end of file `parent` is closed; its exit code."""
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
    """Ask the group to end, and kill what is left of it."""
    send_signal(child.pid, signal.SIGTERM)
    until = time.monotonic() + grace
    while send_signal(child.pid, 0) and time.monotonic() < until:
        child.poll()  # one that has ended and that nobody has waited for is still a member
        time.sleep(LOOK / 4)
    send_signal(child.pid, signal.SIGKILL)
    child.wait()


def send_signal(group: int, sign: int) -> bool:
    """Send a signal to a process group; whether there is one."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, sign)
        return True
    return False


def _stop(*_: object) -> None:
    raise SystemExit(128 + signal.SIGTERM)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, which then ends
    sys.exit(watch(sys.argv[1:]))
