"""Back-off after failures and rate limits of requests to a server."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime


def backoff(attempt: int, draw: float, *, base: float, longest: float) -> float:
    """Return the seconds to wait after failed attempt 0, 1, ...: exponential backoff with full jitter.

    u min(longest, base 2^attempt), u in [0, 1) drawn uniformly     Brooker 2015, "Exponential backoff and jitter"

    >>> backoff(3, 0.5, base=0.5, longest=30.0), backoff(50, 0.5, base=0.5, longest=30.0)
    (2.0, 15.0)
    """
    return draw * min(longest, base * 2.0 ** min(attempt, 64))


def retry_after(headers: Mapping[str, str], now: float) -> float:
    """Return the seconds of a Retry-After header; 0 without one. `now` is the Unix time in seconds.

    The header has seconds or a date (RFC 9110, section 10.2.3); some servers use `retry-after-ms`.

    >>> retry_after({"retry-after": "1.5"}, 0.0), retry_after({"retry-after": "Thu, 01 Jan 1970 00:01:00 GMT"}, 20.0)
    (1.5, 40.0)
    """
    for name, unit in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        try:
            seconds = float(headers[name]) * unit
        except (KeyError, ValueError):
            continue
        return max(seconds, 0.0) if math.isfinite(seconds) else 0.0
    try:
        return max(parsedate_to_datetime(headers["retry-after"]).timestamp() - now, 0.0)
    except (KeyError, ValueError):
        return 0.0


@dataclass
class Pace:
    """Rate limit for requests or tokens, spread evenly: u units delay the next ones by 60 u / `per_minute` seconds.

    >>> pace = Pace(per_minute=120.0)
    >>> [pace.wait(1.0, now) for now in (0.0, 0.0, 0.25, 9.0)]
    [0.0, 0.5, 0.75, 0.0]
    """

    per_minute: float
    free: float = -math.inf
    """Time from which the next unit is allowed."""

    def wait(self, units: float, now: float) -> float:
        """Reserve units and return the seconds until they are allowed."""
        start = max(now, self.free)
        self.free = start + units * 60.0 / self.per_minute
        return start - now

    def correct(self, units: float) -> None:
        """Correct a reservation by the units that were used beyond it (negative if fewer were used)."""
        self.free += units * 60.0 / self.per_minute
