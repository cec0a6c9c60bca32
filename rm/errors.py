"""Errors that users can correct: each message states the value, its location and a remedy."""

import difflib
from collections.abc import Iterable


class UsageError(ValueError):
    """Invalid or inconsistent request (exit code 2)."""


class DataError(ValueError):
    """Unusable data (exit code 3)."""


class CheckFailed(Exception):
    """Failed check (exit code 5)."""


UNREADABLE = (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)
"""Exceptions raised by malformed values: missing key, text instead of a number, number out of range, deep nesting."""


def did_you_mean(value: str, choices: Iterable[str], otherwise: str = "") -> str:
    """Return a hint for a message about an unknown name: a close match, else `otherwise`, else all choices.

    >>> did_you_mean("scaler", ["linear", "scalar"])
    "did you mean 'scalar'?"
    >>> did_you_mean("samples", ["seed", "bootstrap_samples"])
    "did you mean 'bootstrap_samples'?"
    """
    names = list(choices)
    close = difflib.get_close_matches(value, names, n=1) or [name for name in names if name.endswith(f"_{value}")]
    return f"did you mean '{close[0]}'?" if close else otherwise or f"there is {', '.join(names)}"
