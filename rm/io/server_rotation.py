"""Rotation of requests over several equivalent servers, with growing pauses after failures."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from urllib.parse import urlsplit

from ..errors import UsageError

LOCAL = ("127.0.0.1", "localhost", "::1")
"""Names of this machine."""


def on_this_machine(url: str) -> bool:
    """Return whether a server's address is of this machine, which a proxy that the environment names cannot reach."""
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@dataclass
class Rotation:
    """Round robin over the available servers 0 ... number - 1; all times are in seconds, of any clock.

    After its kth consecutive failure a server pauses for min(longest, first 2^(k-1)), or for as long as it requested if
    that is longer. Failures of requests that were in flight at the same time count as one.

    >>> turns = Rotation(3, first=1.0)
    >>> [turns.choose(0.0) for _ in range(4)]
    [0, 1, 2, 0]
    >>> turns.failed(1, 0.0)
    >>> [turns.choose(0.5) for _ in range(3)], [turns.choose(1.0) for _ in range(3)]
    ([2, 0, 2], [0, 1, 2])
    """

    number: int
    first: float = 0.5
    """Pause after the first failure, in seconds; with 0, servers pause only if they request it."""
    longest: float = 60.0
    states: list["ServerState"] = field(init=False, repr=False)
    turn: int = field(default=0, init=False)
    """Index of the next server."""

    def __post_init__(self):
        if self.number < 1:
            raise UsageError("no server is set; name at least one")
        self.states = [ServerState() for _ in range(self.number)]

    def available(self, now: float, but: Collection[int] = ()) -> list[int]:
        """Return the available servers, except `but`, in the order of their turns."""
        order = [(self.turn + step) % self.number for step in range(self.number)]
        return [index for index in order if index not in but and self.states[index].until <= now]

    def choose(self, now: float, but: Collection[int] = ()) -> int:
        """Return the next available server not in `but`, or the one whose pause ends first."""
        available = self.available(now, but)
        others = [index for index in range(self.number) if index not in but] or range(self.number)
        chosen = available[0] if available else min(others, key=lambda index: self.states[index].until)
        self.turn = (chosen + 1) % self.number
        return chosen

    def wait(self, now: float) -> float:
        """Return the seconds until a server is available."""
        return max(0.0, min(rest.until for rest in self.states) - now)

    def failed(self, index: int, now: float, *, pause: float = 0.0, since: float = math.inf) -> None:
        """Record the failure of a request sent at `since`; `pause` is what the server requested, in seconds."""
        rest = self.states[index]
        if since >= rest.last:
            rest.failures, rest.last = rest.failures + 1, now
            rest.until = now + min(self.longest, self.first * 2.0 ** min(rest.failures - 1, 64))
        rest.until = max(rest.until, now + pause)

    def succeeded(self, index: int) -> None:
        """Record a successful request."""
        self.states[index] = ServerState()


@dataclass
class ServerState:
    """Failures and pause of one server."""

    failures: int = 0
    """Consecutive failures."""
    last: float = -math.inf
    """Time of the last reported failure."""
    until: float = -math.inf
    """End of the pause."""


def addresses(text: str | Sequence[str], what: str = "base_url") -> tuple[str, ...]:
    """Return as a tuple one address, or several addresses in a list or in a text `[first, second]`.

    >>> addresses("[http://a:1/v1, http://b:2/v1]"), addresses(["http://a:1"])
    (('http://a:1/v1', 'http://b:2/v1'), ('http://a:1',))
    """
    if isinstance(text, str):
        text = text[1:-1] if text.startswith("[") and text.endswith("]") else text
        text = text.replace(",", " ").split() or [text]
    urls = tuple(address.strip("'\"") for address in text)
    if twice := [address for address in urls if urls.count(address) > 1]:
        raise UsageError(f"{what} names {twice[0]} twice; name each server once")
    return urls


def check_address(text: str, what: str = "base_url", *, example: str = "http://127.0.0.1:8000", key: str = "") -> None:
    """Raise `UsageError` unless `text` is an http address without secrets; these belong in the variable `key`.

    >>> check_address("127.0.0.1:8000", "--servers")
    Traceback (most recent call last):
    rewardlab.rm.errors.UsageError: --servers must be an address such as http://127.0.0.1:8000, got '127.0.0.1:8000'
    """
    try:
        parts = urlsplit(text)
        host = parts.hostname if parts.port is None or parts.port else None
    except ValueError:
        host = None
    if host is None or parts.scheme not in ("http", "https"):
        raise UsageError(f"{what} must be an address such as {example}, got '{text}'")
    if parts.username or parts.password or parts.query:
        raise UsageError(
            f"the address of {host} has a user, a password or a query in it; put the key into the environment variable "
            f"{key} instead"
        )
