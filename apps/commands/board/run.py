"""`rewardlab board`: a leaderboard of many runs, with intervals and tied groups."""

import os
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ....benchmarks import leaderboard as boards
from ....benchmarks.compare import check_samples
from ....rm.errors import UsageError
from ....rm.io.escaping import unescape
from ...publishing.exported_results import every_eval_ever, record_path
from ...runs.finished import Finished, case_hash, open_finished, rank_runs
from ...runs.run_folder import PARTIAL, log, read_settings, run_folder, save_figure, write_json
from ...runs.summaries import SUMMARY
from ...runs.tables import ITEMS, SCORES
from .settings import BoardConfig


def run_board(config: BoardConfig) -> dict[str, Any]:
    """Write a leaderboard of every finished run under a folder: one table per suite and set of cases."""
    check_samples(config.bootstrap_samples)
    runs, unfinished = _find_runs(Path(config.runs))
    if unfinished:
        log(f"unfinished runs, left out of the leaderboard: {', '.join(unfinished)}")
    if not runs:
        raise UsageError(f"there is no finished run of rewardlab eval under {config.runs}; name another folder")
    runs_by_cases: dict[tuple[str, frozenset[str]], dict[str, Finished]] = {}
    for name, run in runs.items():
        runs_by_cases.setdefault((run.suite.name, frozenset(map(case_hash, run.cases))), {})[name] = run
    options = {"samples": config.bootstrap_samples, "seed": config.seed}
    results = [rank_runs(group, **options) for group in runs_by_cases.values()]
    with run_folder(config.output, asdict(config), overwrite=config.overwrite) as work:
        (work / "board.md").write_text(boards.markdown(results, unfinished), encoding="utf-8")
        (work / "board.csv").write_text(boards.as_csv(results), encoding="utf-8")
        save_figure(boards.figure(results), work / "board.png")
        if config.every_eval_ever:
            _write_records(runs.values(), config, work)
    log(unescape(boards.markdown(results, unfinished)))
    suites = [board.suite for board in results]
    return {"board": config.output, "runs": len(runs), "suites": suites, "unfinished": unfinished}


def _find_runs(root: Path) -> tuple[dict[str, Finished], list[str]]:
    """Return the finished evaluations below a folder, keyed by relative path, and the paths of the unfinished ones.

    Hidden folders and runs of other commands are ignored.
    """
    finished: dict[str, Finished] = {}
    unfinished: list[str] = []
    for parent, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        folder = Path(parent)
        if not ({ITEMS, SCORES} & {*files} or "benchmark" in read_settings(folder)):
            continue
        name = folder.relative_to(root)
        if any(part.endswith(PARTIAL) for part in name.parts):
            unfinished.append(name.as_posix())
        elif SUMMARY in files:
            finished[name.as_posix()] = open_finished(parent)
    return finished, unfinished


def _write_records(runs: Iterable[Finished], config: BoardConfig, work: Path) -> None:
    """Write a record in the Every Eval Ever format for each model of each run."""
    for run in runs:
        for row in run.summary["rows"]:
            if row["role"] == "model":
                record = every_eval_ever(run, row, config.organization, config.relationship)
                path = work / record_path(record, run)
                path.parent.mkdir(parents=True, exist_ok=True)
                write_json(path, record)
