"""The errors a user can mend: each message has the value, the place and the way out."""


class UsageError(ValueError):
    """What was asked for does not exist or does not fit together (exit code 2)."""


class DataError(ValueError):
    """What was read cannot be used as it is (exit code 3)."""


class CheckFailed(Exception):
    """A check that was asked for did not hold (exit code 5)."""
