"""`rewardlab board`: a leaderboard of many runs, with intervals and tied groups."""

from collections.abc import Mapping
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

Judged = tuple[str, list[Judgment]]
"""Role and judgments of a scorer."""


def run_board(config: BoardConfig) -> dict[str, Any]:
    """A leaderboard of every run under a folder: one table per suite and set of cases."""
    runs = [open_finished(str(path.parent)) for path in sorted(Path(config.runs).rglob("summary.json"))]
    if not runs:
        raise UsageError(f"there is no finished run of rewardlab eval under {config.runs}")
    runs_by_cases: dict[tuple[str, frozenset[str]], dict[str, Finished]] = {}
    for run in runs:
        group = runs_by_cases.setdefault((run.suite.name, frozenset(map(case_hash, run.cases))), {})
        group[run.folder.relative_to(config.runs).as_posix()] = run
    made = [_board(group) for group in runs_by_cases.values()]
    with run_folder(config.output, asdict(config), overwrite=config.overwrite) as work:
        (work / "board.md").write_text(boards.markdown(made), encoding="utf-8")
        (work / "board.csv").write_text(boards.as_csv(made), encoding="utf-8")
        save_figure(boards.figure(made), work / "board.png")
    log(boards.markdown(made))
    return {"board": config.output, "runs": len(runs), "suites": [run.suite for run in made]}


def _board(runs: Mapping[str, Finished]) -> boards.Board:
    """Rank the scorers of runs of the same cases, by name of the run.

    Scorers of the same name with the same judgments are one; those with other judgments are told apart by their runs.
    """
    first = next(iter(runs.values()))
    by_scorer: dict[str, dict[str, Judged]] = {}
    for run_name, run in runs.items():
        for row in run.summary["rows"]:
            judged = (row["role"], run.of(row["scorer"], first.cases))
            distinct = by_scorer.setdefault(row["scorer"], {})
            if judged not in distinct.values():
                distinct[run_name] = judged
    named = {
        scorer if len(distinct) == 1 else f"{scorer} ({run_name})": judged
        for scorer, distinct in by_scorer.items()
        for run_name, judged in distinct.items()
    }
    return boards.board(first.suite, first.cases, named, runs=[*runs])
