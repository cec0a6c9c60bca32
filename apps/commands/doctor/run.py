"""`rewardlab doctor`: hardware, packages and checks of this machine, with remedies."""

from typing import Any

from ...installation.machine import checks, machine_facts, table
from ...runs.run_folder import log
from .settings import DoctorConfig


def doctor(config: DoctorConfig) -> dict[str, Any]:
    """Return the facts and checks of this machine. Without `--json` they are also logged as a table."""
    facts = machine_facts()
    results = list(checks(facts))
    if not config.json:
        log(table(facts, results))
    rows = [check._asdict() for check in results]
    return facts | {"checks": rows, "ok": all(check.status != "fail" for check in results)}
