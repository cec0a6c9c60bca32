"""`rewardlab verify`: recompute a run's tables from its scores, and compare."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ....benchmarks.report import markdown
from ....rm.contract.golden_scores import check_files
from ....rm.errors import CheckFailed
from ...runs.finished import open_finished
from ...runs.run_folder import to_json_types
from .settings import VerifyConfig


def run_verify(config: VerifyConfig) -> dict[str, Any]:
    """Recompute every table from the per-item scores, or hash a model's files. Raise `CheckFailed` for a difference."""
    if (files := check_files(Path(config.run), read_all=True)) is not None:
        return {"run": config.run, "verified": True, "files": files}
    run = open_finished(config.run)
    report = run.report(run.summary["notes"])
    again = json.loads(json.dumps(to_json_types(asdict(report))))
    rows = [{"truncated": 0, "omitted": 0} | row for row in run.summary["rows"]]  # which earlier reports did not count
    if different := _first_difference(again, {**run.summary, "rows": rows}):
        raise _mismatch_error(config.run, different)
    if markdown(report) != (run.folder / "report.md").read_text(encoding="utf-8"):
        raise _mismatch_error(config.run, "report.md")
    return {"run": config.run, "verified": True, "cases": len(run.cases), "scorers": len(report.rows)}


def _mismatch_error(run: str, what: str) -> CheckFailed:
    """Return the error for a part of a run that the recomputation does not confirm."""
    return CheckFailed(
        f"{run}: {what} does not follow from the stored scores; the run has been changed, or an earlier version "
        "computed it differently; evaluate again with rewardlab eval"
    )


def _first_difference(computed: Any, stored: Any, path: str = "summary.json") -> str | None:
    """Return the path of the first difference between two JSON values, or None if they are equal."""
    if isinstance(computed, dict) and isinstance(stored, dict):
        differences = ((name, computed.get(name), stored.get(name)) for name in {**computed, **stored})
    elif isinstance(computed, list) and isinstance(stored, list) and len(computed) == len(stored):
        differences = ((str(i), a, b) for i, (a, b) in enumerate(zip(computed, stored, strict=True)))
    else:
        return None if computed == stored else path
    return next(
        (difference for name, a, b in differences if (difference := _first_difference(a, b, f"{path} {name}"))), None
    )
