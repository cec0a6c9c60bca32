"""The log of a training, and the rewards in its settings."""

import json
import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from .....rm.errors import UNREADABLE, DataError
from .....rm.io.checked_files import from_yaml
from .....rm.registry.specs import split_name
from ....runs.run_folder import CONFIG
from ....runs.tables import STEPS
from ...run_list import LOGS, stamp

WAY_OUT = "start `rewardlab rl` again with --resume, or with --overwrite"
Steps = Sequence[Mapping[str, float]]


class Sources(NamedTuple):
    """Reward sources in a run's settings: rewards for training, rewards that are only logged (`watch`), weights."""

    trained: tuple[str, ...]
    watched: tuple[str, ...]
    weights: Mapping[str, float]

    def watches(self, component: str) -> bool:
        """Return whether a component is only logged. A component is named SOURCE, or SOURCE.OBJECTIVE."""
        return not self._of(component, self.trained) and self._of(component, self.watched)

    def weight(self, component: str) -> float:
        """Return the weight of a component: the weight in the settings, else 0 if it is only logged, else 1."""
        return self.weights.get(component, float(not self.watches(component)))

    @staticmethod
    def _of(component: str, sources: Sequence[str]) -> bool:
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
    """Return the name of the log of a policy's training, or of a reward model's."""
    return next((name for name in LOGS if (folder / name).is_file()), STEPS)


def damaged_lines(folder: Path) -> tuple[int, ...]:
    """Return the line numbers (from 1) of complete log lines that cannot be parsed."""
    return _lines(folder / log_of(folder), stamp(folder, LOGS))[1]


@lru_cache(maxsize=64)
def _lines(path: Path, _stamp: Any) -> tuple[Steps, tuple[int, ...]]:
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
