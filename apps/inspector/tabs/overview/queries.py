"""Content of the overview: results of every model, policy trainings, runs in progress, and unreadable runs."""

import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from .....benchmarks.types import Difference, Interval, Report, Row, part_of
from .....rm.errors import UNREADABLE, DataError, UsageError
from .....rm.training import CHECKPOINTS
from .....rm.types import OVERALL
from ....runs.run_folder import MANIFEST, read_settings
from ....runs.summaries import SUMMARY, areas, read_report
from ....runs.tables import CHUNK, PLAN, PROGRESS, SCORES, stored_judgments
from ...run_list import ANSWERS, JUDGED, STUDY, TRAINED, Entry, Root, read_manifest, stamp
from ..training.log import Ends, Panel, Steps, change_of, log_of, panels, read_sources, read_steps, series

MOST_RANKED = 20_000
"""Largest number of cases for which the page ranks models; for more, use `rewardlab board`."""
POINTS = 120
"""Largest number of points of a curve."""
CURVES = ("reward", "loss", "accuracy", "components", "KL")
"""Panels of the training tab whose curves the overview shows; for watched rewards, only the first two."""


class Standing(NamedTuple):
    """Result of one model on one benchmark."""

    run: str
    scorer: str
    role: str
    areas: Mapping[str, Interval]
    """Accuracy by area: `overall` and the sections."""
    baselines: Mapping[str, Interval]
    """Baseline -> its overall accuracy."""
    gain: Difference | None
    """Overall accuracy minus the accuracy of the best baseline on the same cases. None without a baseline."""
    abstained: int
    date: str
    growing: bool = False
    """Whether the run is not finished yet."""
    cautions: tuple[str, ...] = ()
    """Reasons to distrust the result: a partial benchmark, truncated or omitted text, missing judgments."""


class Board(NamedTuple):
    """Results on the same data of one benchmark, the best model first, then references."""

    suite: str
    version: str
    data: str
    """Names of the data files. Empty if the suite loads its data from the Hub."""
    cases: int
    sections: tuple[str, ...]
    standings: tuple[Standing, ...]


class Curve(NamedTuple):
    """A metric over the steps of a training."""

    name: str
    values: tuple[float, ...]
    watched: bool = False
    definition: str = ""
    ends: Ends | None = None


class Training(NamedTuple):
    """A training run of a policy or a reward model: last step, number of steps, and main curves."""

    run: str
    step: int
    steps: int | None
    curves: tuple[Curve, ...]
    growing: bool
    changed: float


class Job(NamedTuple):
    """An unfinished run: its progress, and the time of its last change."""

    run: str
    kind: str
    progress: str
    share: float | None
    """Fraction of the run that is complete, in [0, 1]. None if unknown."""
    changed: float


class Unreadable(NamedTuple):
    """A run that cannot be read, and the reason."""

    run: str
    reason: str


class Overview(NamedTuple):
    """All runs below a folder, by type."""

    boards: tuple[Board, ...]
    trainings: tuple[Training, ...]
    jobs: tuple[Job, ...]
    unreadable: tuple[Unreadable, ...]
    others: Mapping[str, int]
    """Kind -> number of runs that other tabs show."""


def overview(root: Root) -> Overview:
    """Return the content of the overview: every run below the root, as result, training, job, unreadable or other."""
    standings: dict[tuple[Any, ...], list[Standing]] = {}
    trainings, jobs, unreadable = [], [], []
    others: dict[str, int] = {}
    for entry in root.entries():
        try:
            if entry.kind == TRAINED:
                trainings.append(_training(entry))
            elif entry.growing and not (entry.path / SUMMARY).is_file():
                jobs.append(_job_progress(entry))
            elif entry.kind == JUDGED:
                report, date, data, stored = _report(entry.path, stamp(entry.path, (SUMMARY, MANIFEST, SCORES)))
                for standing in _standings(entry, report, date, stored):
                    key = report.suite, report.version, report.cases, data
                    standings.setdefault(key, []).append(standing)
            elif entry.kind in (STUDY, ANSWERS):
                others[entry.kind] = others.get(entry.kind, 0) + 1
        except DataError as error:
            unreadable.append(Unreadable(entry.id, str(error)))
    largest = sorted(standings.items(), key=lambda board: (board[0][0], -board[0][2], board[0][1:]))
    boards = [_sorted_board(*key, rows) for key, rows in largest]
    return Overview(tuple(boards), tuple(trainings), tuple(jobs), tuple(unreadable), others)


# ---- results ----


@lru_cache(maxsize=4096)
def _report(folder: Path, _stamp: Any) -> tuple[Report, str, tuple[tuple[str, str], ...], int]:
    """Return the report of a run, its date, the names and hashes of its data, and the number of stored judgments."""
    try:
        manifest = read_manifest(folder)
        date = str(manifest["started"])[:10]
        data = tuple(sorted((Path(name).name, str(value)) for name, value in (manifest.get("data") or {}).items()))
    except UNREADABLE:
        date, data = time.strftime("%Y-%m-%d", time.gmtime((folder / SUMMARY).stat().st_mtime)), ()
    return read_report(folder), date, data, stored_judgments(folder)


def cautions(report: Report, row: Row, stored: int) -> tuple[str, ...]:
    """Return phrases on why a result is not comparable with results on the full benchmark.

    `stored` is the number of stored judgments of all scorers.
    """
    expected = report.cases * len(report.rows)
    phrases = {
        "part of the benchmark": bool(part_of(report.notes)),
        f"{stored:,} of {expected:,} judgments stored": stored != expected,
        f"{row.truncated:,} cases cut": row.truncated > 0,
        f"{row.omitted:,} cases without a text that the template leaves out": row.omitted > 0,
    }
    return tuple(phrase for phrase, applies in phrases.items() if applies)


def _standings(entry: Entry, report: Report, date: str, stored: int) -> list[Standing]:
    """Return the results of all models and references in a report."""
    baselines = {row.scorer: row.overall for row in report.rows if row.role == "baseline"}
    known = [name for name, overall in baselines.items() if overall.value == overall.value]
    best = max(known, key=lambda name: baselines[name].value, default="")
    return [
        Standing(
            entry.id,
            row.scorer,
            row.role,
            areas(row),
            baselines,
            row.minus_baseline.get(best, {}).get(OVERALL),
            row.unscored,
            date,
            entry.growing,
            cautions(report, row, stored),
        )
        for row in report.rows
        if row.role != "baseline"
    ]


def _sorted_board(suite: str, version: str, cases: int, data: Sequence[Any], standings: Sequence[Standing]) -> Board:
    sections = dict.fromkeys(name for standing in standings for name in standing.areas if name != OVERALL)
    names = ", ".join(name for name, _ in data)
    return Board(suite, version, names, cases, (*sections,), tuple(sorted(standings, key=_sort_key)))


def _sort_key(standing: Standing) -> tuple[bool, float, str, str]:
    value = standing.areas[OVERALL].value
    return standing.role != "model", (math.inf if value != value else -value), standing.scorer, standing.run


def ranks(root: Root, board: Board) -> Mapping[tuple[str, str], int]:
    """Return (run, scorer) -> rank from 1 among the models, or among the references of a board without models.

    The scorers of a rank do not differ significantly. Ranks are computed as by `rewardlab board`, without baselines.

    Empty for a board of one scorer, of too many cases for a page, or of runs that cannot be ranked together.
    """
    runs = sorted({standing.run for standing in board.standings if not standing.growing})
    folders = [root.find(run, JUDGED) for run in runs]
    if len(board.standings) < 2 or board.cases > MOST_RANKED or not runs:
        return {}
    stamps = tuple(stamp(folder, (SUMMARY, SCORES)) for folder in folders)
    groups = _groups(tuple(zip(runs, folders, strict=True)), stamps)
    sides = [standing[:2] for standing in board.standings if standing.role == board.standings[0].role]
    ranked = {side: groups[side] for side in sides if side in groups}
    order = sorted({*ranked.values()})
    return {side: order.index(group) + 1 for side, group in ranked.items()}


@lru_cache(maxsize=64)
def _groups(runs: tuple[tuple[str, Path], ...], _stamps: Any) -> Mapping[tuple[str, str], int]:
    from ....runs.finished import name_scorers, open_finished, rank_runs

    try:
        finished = {name: open_finished(str(folder)) for name, folder in runs}
        groups = {row.scorer: row.group for row in rank_runs(finished, samples=1000, seed=0).rows}
        return {side: group for side, label in name_scorers(finished)[0].items() if (group := groups.get(label))}
    except (DataError, UsageError, KeyError):
        return {}


# ---- trainings ----


def _training(entry: Entry) -> Training:
    steps = read_steps(entry.path)
    curves = tuple(_curves(steps, panels(steps, read_sources(entry.path))))
    last = int(steps[-1]["step"]) if steps else 0
    changed = _change_time(entry.path, log_of(entry.path))
    return Training(entry.id, last, _max_steps(entry.path), curves, entry.growing, changed)


def _curves(steps: Steps, panels: Mapping[str, Panel]) -> Iterator[Curve]:
    for name in CURVES:
        lines = panels[name].lines if name in panels else ()
        for line in [line for line in lines if line.watched][:2] if name == "components" else lines:
            values = [value for value in series(steps, line.column)[1] if math.isfinite(value)]
            drawn = (*values[: -1 : max(1, -(-len(values) // POINTS))], *values[-1:])
            label, definition = panels[name].label(line), panels[name].definition
            if values:
                yield Curve(label, drawn, line.watched, definition, change_of(values))


def _max_steps(folder: Path) -> int | None:
    steps = read_settings(folder).get("max_steps")
    return steps if isinstance(steps, int) and steps > 0 else None


# ---- runs in progress ----


def _job_progress(entry: Entry) -> Job:
    """Return the progress of an unfinished run."""
    done, share = _evaluation_progress(entry.path) if entry.kind == JUDGED else _training_progress(entry.path)
    changed = max((_change_time(entry.path, path.name) for path in entry.path.glob("*")), default=0.0)
    return Job(entry.id, "evaluation" if entry.kind == JUDGED else "run", done, share, changed)


def _evaluation_progress(folder: Path) -> tuple[str, float | None]:
    """Return the progress of an evaluation as text and as the fraction of judgments that are stored, in [0, 1]."""
    done = sum(1 for _ in (folder / PROGRESS).glob("*/*.jsonl"))
    try:
        plan = json.loads((folder / PROGRESS / PLAN).read_text(encoding="utf-8"))
        chunks = math.ceil(plan["cases"] / CHUNK) * plan["scorers"]
        return f"{min(done * CHUNK, plan['cases'] * plan['scorers']):,} judgments", min(1.0, done / chunks)
    except UNREADABLE:
        return (f"{done * CHUNK:,} judgments" if done else ""), None


def _training_progress(folder: Path) -> tuple[str, float | None]:
    """Return the progress of a training as text, from its last checkpoint, and as a fraction in [0, 1]."""
    names = [path.name.removeprefix("checkpoint-") for path in (folder / CHECKPOINTS).glob("checkpoint-*")]
    last, steps = max((int(name) for name in names if name.isdigit()), default=0), _max_steps(folder)
    return (f"checkpoint at step {last:,}" if last else ""), (last / steps if last and steps else None)


def _change_time(folder: Path, name: str) -> float:
    ((nanoseconds, _),) = stamp(folder, [name])
    return nanoseconds / 1e9
