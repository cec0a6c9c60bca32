"""`rewardlab board`: a leaderboard of many runs, with intervals and tied groups."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ....benchmarks import leaderboard as boards
from ....judges.types import Judgment
from ....rm.errors import UsageError
from ...runs.figures import save_figure
from ...runs.finished import Finished, case_hash, open_finished
from ...runs.run_folder import log, run_folder
from .settings import BoardConfig


def run_board(config: BoardConfig) -> dict[str, Any]:
    """A leaderboard of every run under a folder: one table per suite and set of cases."""
    runs = [open_finished(str(path.parent)) for path in sorted(Path(config.runs).rglob("summary.json"))]
    if not runs:
        raise UsageError(f"there is no finished run of rewardlab eval under {config.runs}")
    runs_by_cases: dict[tuple[str, frozenset[str]], list[Finished]] = {}
    for run in runs:
        runs_by_cases.setdefault((run.suite.name, frozenset(map(case_hash, run.cases))), []).append(run)
    made = [_board(group, Path(config.runs)) for group in runs_by_cases.values()]
    with run_folder(config.output, asdict(config), overwrite=config.overwrite) as work:
        (work / "board.md").write_text(boards.markdown(made), encoding="utf-8")
        (work / "board.csv").write_text(boards.as_csv(made), encoding="utf-8")
        save_figure(boards.figure(made), work / "board.png")
    log(boards.markdown(made))
    return {"board": config.output, "runs": len(runs), "suites": [run.suite for run in made]}


def _board(runs: Sequence[Finished], root: Path) -> boards.Board:
    """Scorers of the same name with the same judgments are one; with other judgments they go by their run."""
    judged: dict[str, tuple[str, list[Judgment]]] = {}
    for run in runs:
        for row in run.summary["rows"]:
            key = (row["role"], run.of(row["scorer"], runs[0].cases))
            name = row["scorer"] if judged.get(row["scorer"], key) == key else f"{run.folder.name}/{row['scorer']}"
            judged[name] = key
    names = [run.folder.relative_to(root).as_posix() for run in runs]
    return boards.board(runs[0].suite, runs[0].cases, judged, runs=names)
