"""What the commands of research share: exit codes as those of `rewardlab`."""

import sys
from collections.abc import Callable
from typing import Any

from ..rm.errors import CheckFailed, DataError, UsageError


def exit_code(command: str, run: Callable[[], Any]) -> int:
    """Run a command and return 0; of an error in usage, data or a check, print its sentence and return its code."""
    try:
        run()
        return 0
    except (UsageError, DataError, CheckFailed) as error:
        from ..apps.cli import EXIT  # late: a bare machine with a GPU lacks what the command line imports

        print(f"{command}: {error}", file=sys.stderr)
        return next(code for kind, code in EXIT.items() if isinstance(error, kind))
