"""The errors a user can mend: each message has the value, the place and the way out."""

import difflib
from collections.abc import Iterable


class UsageError(ValueError):
    """What was asked for does not exist or does not fit together (exit code 2)."""


class DataError(ValueError):
    """What was read cannot be used as it is (exit code 3)."""


class CheckFailed(Exception):
    """A check that was asked for did not hold (exit code 5)."""


UNREADABLE = (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)
"""What reading a file may raise whose values are not what they should be: a missing key, a text for a number, a number
that no type holds, brackets that are nested too deeply."""


def did_you_mean(value: str, choices: Iterable[str], otherwise: str = "") -> str:
    """The end of a message about an unknown name: the choice that is close, else `otherwise`, else every choice.

    >>> did_you_mean("scaler", ["linear", "scalar"])
    "did you mean 'scalar'?"
    """
    names = list(choices)
    close = difflib.get_close_matches(value, names, n=1)
    return f"did you mean '{close[0]}'?" if close else otherwise or f"there is {', '.join(names)}"
