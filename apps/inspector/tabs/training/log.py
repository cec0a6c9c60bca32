"""The log of a training, the rewards in its settings, and its columns in panels."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from statistics import variance
from typing import Any, NamedTuple

from .....rm.errors import UNREADABLE, DataError
from .....rm.io.checked_files import from_yaml
from .....rm.registry.specs import split_name
from ....runs.run_folder import CONFIG
from ....runs.tables import STEPS
from ...run_list import LOGS, stamp
from ..metrics import METRICS

WAY_OUT = "start `rewardlab rl` again with --resume, or with --overwrite"
SETS = "train", "held-out"
"""Names of the chart curves of a reward model's training."""
MEAN = re.compile(r"rewards/.+/mean")
Steps = Sequence[Mapping[str, float]]


class Sources(NamedTuple):
    """Reward sources in a run's settings: rewards for training, rewards that are only logged (`watch`), weights."""

    trained: tuple[str, ...]
    watched: tuple[str, ...]
    weights: Mapping[str, float]

    def watches(self, component: str) -> bool:
        """Return whether a component is only logged. A component is named SOURCE, or SOURCE.OBJECTIVE."""
        return not self._belongs_to(component, self.trained) and self._belongs_to(component, self.watched)

    def weight(self, component: str) -> float:
        """Return the weight of a component: the weight in the settings, else 0 if it is only logged, else 1."""
        return self.weights.get(component, float(not self.watches(component)))

    @staticmethod
    def _belongs_to(component: str, sources: Sequence[str]) -> bool:
        """Return whether a reward component belongs to one of the sources."""
        return any(component == source or component.startswith(f"{source}.") for source in sources)


def read_sources(folder: Path) -> Sources:
    """Load the reward sources from `config.yaml`. Without that file, every logged reward counts with weight 1."""
    try:
        settings = from_yaml((folder / CONFIG).read_text(encoding="utf-8"))
        trained, watched = (
            tuple(split_name(str(text))[0] for text in settings.get(name) or ()) for name in ("reward", "watch")
        )
        pairs = [str(text).rpartition("=") for text in settings.get("weight") or ()]
        return Sources(trained, watched, {name: float(value) for name, _, value in pairs})
    except FileNotFoundError:
        return Sources((), (), {})
    except UNREADABLE as error:
        raise DataError(f"{folder / CONFIG} is damaged ({error}); {WAY_OUT}") from error


def read_steps(folder: Path) -> Steps:
    """Return the log lines of a run that have a finite step. An incomplete last line is ignored."""
    return _lines(folder / log_of(folder), stamp(folder, LOGS))[0]


def log_of(folder: Path) -> str:
    """Return the file name of the training log in a run of a policy or of a reward model."""
    return next((name for name in LOGS if (folder / name).is_file()), STEPS)


def damaged_lines(folder: Path) -> tuple[int, ...]:
    """Return the line numbers (from 1) of complete log lines that cannot be parsed."""
    return _lines(folder / log_of(folder), stamp(folder, LOGS))[1]


@lru_cache(maxsize=64)
def _lines(path: Path, _stamp: Any) -> tuple[Steps, tuple[int, ...]]:
    """Return the steps of a log, and the line numbers of damaged lines."""
    try:
        *complete, _unfinished = path.read_bytes().split(b"\n")
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error}); {WAY_OUT}") from error
    rows = [_line(line) for line in complete]
    damaged = tuple(index for index, row in enumerate(rows, 1) if row is None)
    return tuple(row for row in rows if row and math.isfinite(row.get("step", math.nan))), damaged


def _line(line: bytes) -> dict[str, float] | None:
    try:
        row = json.loads(line)
        return {name: float(value) for name, value in row.items() if isinstance(value, int | float)}
    except (ValueError, AttributeError, RecursionError, OverflowError):
        return None


# ---- columns ----


def series(steps: Steps, column: str, x: str = "step") -> tuple[list[float], list[float]]:
    """Return the values of `x` and `column` for the log lines that have both."""
    points = [(row[x], row[column]) for row in steps if x in row and column in row]
    return [x_value for x_value, _ in points], [y_value for _, y_value in points]


class Line(NamedTuple):
    """A line of a figure: one column of the log."""

    column: str
    name: str
    watched: bool = False


class Panel(NamedTuple):
    """A figure of several columns that have one unit."""

    title: str
    unit: str
    lines: tuple[Line, ...]
    error: str = ""
    """The column with the first line's standard error."""
    definition: str = ""

    def label(self, line: Line) -> str:
        """Return a line's name in a list with other panels' lines, such as "loss, train"."""
        return f"{self.title}, {line.name}" if line.name in SETS else line.name


def components(steps: Steps) -> list[str]:
    """Return the reward components in the order of the log."""
    names = dict.fromkeys(name for row in steps for name in row)
    return [name[len("rewards/") : -len("/mean")] for name in names if MEAN.fullmatch(name)]


def panels(steps: Steps, sources: Sources) -> dict[str, Panel]:
    """Return the panels for which the run has columns."""
    names = components(steps)
    means = tuple(Line(f"rewards/{name}/mean", name, sources.watches(name)) for name in names)
    gold = tuple(line for line in means if line.watched)
    all_panels = {
        "reward": Panel("Reward trained on", "mean over completions", (Line("reward", "reward"),)),
        "components": Panel("Reward components", "mean over completions", means),
        "proxy and gold": Panel(
            "Proxy and gold", "mean over completions", (Line("reward", "trained on"), *gold) if gold else ()
        ),
        "KL": Panel("KL to the reference policy", "nats per completion", (Line("watch/kl", "KL"),), "watch/kl_stderr"),
        "length": Panel("Length of completions", "tokens", (Line("watch/length", "length"),)),
        "entropy": Panel("Entropy", "nats per token", (Line("entropy", "entropy"),)),
    }
    if not any("reward" in row for row in steps):  # of a reward model
        pairs = {name: (Line(name, SETS[0]), Line(f"eval_{name}", SETS[1])) for name in ("loss", "accuracy", "margin")}
        all_panels |= {name: Panel(name.capitalize(), "mean over pairs", lines) for name, lines in pairs.items()}
    logged = {column for row in steps for column in row}
    return {
        name: panel._replace(definition=METRICS.get(f"training {name}") or METRICS[name])
        for name, panel in all_panels.items()
        if any(line.column in logged for line in panel.lines)
    }


def reward_panels(steps: Steps, sources: Sources) -> dict[str, Panel]:
    """Return a panel for each column that a reward function logs, such as R2M's updates or a judge's cost."""
    names = tuple(f"{name}/" for name in (*sources.trained, *sources.watched))
    logged = [column for column in columns(steps) if column.startswith(names)]
    return {column: Panel(column, "as logged", (Line(column, column),)) for column in logged}


def columns(steps: Steps) -> list[str]:
    """Return all logged columns but the step."""
    return sorted({name for row in steps for name in row} - {"step"})


class Ends(NamedTuple):
    """Means of the first and of the last steps of a training."""

    first: float
    last: float
    error: float
    """Standard error of last - first; NaN if each mean is over one step."""


def change_of(values: Sequence[float]) -> Ends | None:
    """Return the ends of a series; None for fewer than two finite values.

    >>> change_of([1.0, 2.0])
    Ends(first=1.0, last=2.0, error=nan)
    """
    finite = [value for value in values if math.isfinite(value)]
    if len(finite) < 2:
        return None
    size = max(1, min(20, len(finite) // 10))
    ends = finite[:size], finite[-size:]
    variances = [variance(end) / size if size > 1 else math.nan for end in ends]
    return Ends(sum(ends[0]) / size, sum(ends[1]) / size, math.sqrt(sum(variances)))
