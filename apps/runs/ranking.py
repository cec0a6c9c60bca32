"""Ranking of the scorers of several finished runs on the same cases, with tied groups."""

from collections.abc import Mapping

from ...benchmarks import leaderboard
from ...benchmarks.types import part_of
from ...judges.types import Judgment
from .finished import Finished

Judged = tuple[str, list[Judgment]]
"""Role and judgments of a scorer."""


def rank_runs(runs: Mapping[str, Finished], *, samples: int, seed: int) -> leaderboard.Board:
    """Rank the scorers of runs on the same cases. `runs` maps the name of a run to the run."""
    first = next(iter(runs.values()))
    labels, judged = name_scorers(runs)
    note = part_of(first.summary["notes"])
    named = {label: judged[side] for side, label in labels.items() if side in judged}
    return leaderboard.board(first.suite, first.cases, named, runs=[*runs], note=note, samples=samples, seed=seed)


def name_scorers(runs: Mapping[str, Finished]) -> tuple[dict[tuple[str, str], str], dict[tuple[str, str], Judged]]:
    """Return the label of each (run, scorer), and role and judgments of the first run of each label.

    Scorers with equal names and judgments have one label. If only the names are equal, the run is added to each.
    """
    first = next(iter(runs.values()))
    by_scorer: dict[str, dict[str, Judged]] = {}
    owner: dict[tuple[str, str], str] = {}
    for run_name, run in runs.items():
        for row in run.summary["rows"]:
            scorer, judged = row["scorer"], (row["role"], run.of(row["scorer"], first.cases))
            distinct = by_scorer.setdefault(scorer, {})
            owner[run_name, scorer] = next((name for name, known in distinct.items() if known == judged), run_name)
            distinct.setdefault(owner[run_name, scorer], judged)
    labels = {
        (run_name, scorer): scorer if len(by_scorer[scorer]) == 1 else f"{scorer} ({home})"
        for (run_name, scorer), home in owner.items()
    }
    return labels, {(name, scorer): judged for scorer, known in by_scorer.items() for name, judged in known.items()}
