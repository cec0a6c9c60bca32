"""Step metrics of policy training: their file, and the summary of a run."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from transformers import TrainerCallback

from ...runs.run_folder import to_json_types


class WriteSteps(TrainerCallback):
    """Callback that appends logged metrics to a file. A resumed run keeps the lines up to its checkpoint."""

    def __init__(self, path: Path):
        self.path = path

    def on_train_begin(self, args, state, control, **kwargs):
        """Delete incomplete lines, and lines after the checkpoint, since these steps are repeated."""
        if state.is_world_process_zero:
            self._write(state.log_history, "w")

    def on_log(self, args, state, control, **kwargs):
        """Append the metrics that were just logged."""
        if state.is_world_process_zero:
            self._write(state.log_history[-1:], "a")

    def _write(self, rows: Sequence[Mapping[str, Any]], mode: str) -> None:
        with self.path.open(mode, encoding="utf-8") as lines:
            lines.writelines(json.dumps(to_json_types(row)) + "\n" for row in rows if "train_runtime" not in row)


def summary(history: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return mean rewards over the first and last tenth of the logged steps, and the final KL.

    First and last steps have different prompts, so `stderr` is the standard error of the difference of their means. It
    is None if a step has only one prompt.
    """
    rows = [row for row in history if "reward" in row]
    tenth = max(1, len(rows) // 10)
    first, last = rows[:tenth], rows[-tenth:]

    def ends(mean: str, stderr: str) -> dict[str, float | None]:
        errors = [_stderr(part, mean, stderr) for part in (first, last)]
        error = None if None in errors else math.hypot(*errors)
        return {"start": _mean(first, mean), "end": _mean(last, mean), "stderr": error}

    names = dict.fromkeys(
        name.removesuffix("/mean")
        for row in rows
        for name in row
        if name.startswith("rewards/") and name.endswith("/mean")
    )
    rewards = {name.removeprefix("rewards/"): ends(f"{name}/mean", f"{name}/stderr") for name in names}
    ends_of_run = {"reward": ends("reward", "reward_stderr"), "rewards": rewards, "kl": _mean(last, "watch/kl")}
    if any("reward_own" in row for row in rows):
        ends_of_run["reward_own"] = ends("reward_own", "reward_own_stderr")
    return ends_of_run | {name: row[name] for row in history for name in row if name == "eval_reward"}


def _mean(rows: Sequence[Mapping[str, Any]], name: str) -> float | None:
    values = [row[name] for row in rows if row.get(name) is not None]
    return fmean(values) if values else None


def _stderr(rows: Sequence[Mapping[str, Any]], mean: str, stderr: str) -> float | None:
    """Return the standard error of the mean over the steps with a value of `mean`."""
    errors = [row.get(stderr) for row in rows if row.get(mean) is not None]
    return math.hypot(*errors) / len(errors) if errors and None not in errors else None
