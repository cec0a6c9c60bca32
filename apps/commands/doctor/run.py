"""`rewardlab doctor`: hardware, packages and checks of this machine, with remedies."""

from typing import Any

from ...machine import checks, machine_facts, table
from ...runs.run_folder import log
from .settings import DoctorConfig


def doctor(config: DoctorConfig) -> dict[str, Any]:
    """Return facts and checks; they are also logged as a table, unless `--json` is given."""
    facts = machine_facts()
    results = list(checks(facts))
    if not config.json:
        log(table(facts, results))
    rows = [check._asdict() for check in results]
    return facts | {"checks": rows, "ok": all(check.status != "fail" for check in results)}
