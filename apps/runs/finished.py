"""Loading and comparison of finished runs of `rewardlab eval` and `rewardlab judge`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...benchmarks.types import Report, Suite, part_of
from ...judges.types import Case, Judgment
from ...rm.errors import UNREADABLE, DataError, UsageError
from ...rm.io.checked_files import from_json
from ...rm.registry.specs import build
from ...rm.types import completion_json, content_hash
from .tables import read_items, read_judgments

if TYPE_CHECKING:
    from ...benchmarks.compare import ScorerComparison
    from ...benchmarks.leaderboard import Board

Judged = tuple[str, list[Judgment]]
"""Role and judgments of a scorer."""

MOST_SAMPLES = 100_000
"""Largest number of bootstrap samples accepted from a stored summary."""
MOST_SUBSETS = 500
"""Maximum number of subsets whose sections are looked up."""


@dataclass(frozen=True)
class Finished:
    """A finished run of `rewardlab eval` or `judge`: summary, suite, cases, and judgments by scorer and case id."""

    folder: Path
    summary: Mapping[str, Any]
    suite: Suite
    cases: list[Case]
    judgments: dict[str, dict[str, Judgment]]

    def of(self, scorer: str, cases: Sequence[Case]) -> list[Judgment]:
        """Return a scorer's judgments in the order of the cases."""
        by_case = self.judgments.get(scorer, {})
        return [by_case.get(case.id) or Judgment(case.id, abstained="no judgment in this run") for case in cases]

    def report(self, notes: Sequence[str]) -> Report:
        """Return the report with these notes, recomputed from the stored scores."""
        # imports PyTorch, which readers of runs do without
        from ...benchmarks.evaluate import RANDOM_ALIKE, evaluate
        from ...benchmarks.scorers import StoredScores

        def scorer(row: Mapping[str, Any]) -> StoredScores:
            judgments = self.judgments[row["scorer"]]
            return StoredScores(
                row["scorer"],
                {case: judgment.abstained or judgment.scores for case, judgment in judgments.items()},
                role=row["role"],
                contract=row["contract"],
                both_orders=RANDOM_ALIKE in row.get("minus_baseline", {}),
                unread=judgments,
            )

        facts = {name: self.summary[name] for name in ("samples", "seed", "interval")}
        return evaluate(self.suite, self.cases, [*map(scorer, self.summary["rows"])], notes=notes, **facts).report

    def model(self, name: str | None) -> str:
        """Return the named scorer, or the only model if the name is None."""
        models = [row["scorer"] for row in self.summary["rows"] if row["role"] == "model"]
        if name is None and len(models) == 1:
            return models[0]
        if name not in self.judgments:
            raise UsageError(f"{self.folder}: choose one of its scorers with --scorer: {', '.join(self.judgments)}")
        return name


def open_finished(folder: str) -> Finished:
    """Load a finished run. Raise `DataError` if the run used another version of its suite."""
    path = Path(folder)
    if not (path / "summary.json").is_file():
        raise UsageError(f"{folder} is not a finished run of rewardlab eval; give the folder of such a run")
    try:
        summary = from_json((path / "summary.json").read_text(encoding="utf-8"))
        suite, version = open_suite(summary["suite"]), summary["version"]
        _check(summary)
    except UNREADABLE as error:
        raise DataError(f"{path / 'summary.json'}: damaged ({error}); run rewardlab eval again") from error
    if version != suite.version:
        raise DataError(
            f"{folder} was made with version {version} of {suite.name}, the current version is {suite.version}; run "
            "rewardlab eval again"
        )
    return _check_judgments(Finished(path, summary, suite, read_items(path), read_judgments(path)))


def _check_judgments(run: Finished) -> Finished:
    """Check that each judgment has one score per response. A case without a judgment becomes an abstention."""
    if not run.cases:
        raise DataError(f"{run.folder}: the run has no cases; run rewardlab eval again")
    answers = {case.id: len(case.answers) for case in run.cases}
    for row in run.summary["rows"]:
        for judgment in run.judgments.get(row["scorer"], {}).values():
            if judgment.scores and answers.get(judgment.case) != len(judgment.scores):
                raise DataError(
                    f"{run.folder}: '{row['scorer']}' lacks a score for each response of '{judgment.case}'; run "
                    "rewardlab eval again"
                )
    names = [row["scorer"] for row in run.summary["rows"]]
    absent = [name for name in names if len(run.judgments.get(name, {})) < len(run.cases)]
    filled = {name: {judgment.case: judgment for judgment in run.of(name, run.cases)} for name in absent}
    return replace(run, judgments=run.judgments | filled)


def _check(summary: Mapping[str, Any]) -> None:
    """Raise a `ValueError` if a field of the summary has the wrong type or range, because it may be untrusted."""
    from ...benchmarks.statistics.figures import INTERVALS

    for name, least, most in (("samples", 1, MOST_SAMPLES), ("seed", 0, 2**64)):
        if type(summary[name]) is not int or not least <= summary[name] <= most:
            raise ValueError(f"{name} must be a whole number from {least} to {most}, got {str(summary[name])[:40]}")
    if summary["interval"] not in INTERVALS:
        raise ValueError(f"interval must be one of {', '.join(INTERVALS)}, got {str(summary['interval'])[:40]}")
    if not all(isinstance(note, str) for note in (*summary["notes"], *summary["findings"])):
        raise ValueError("notes and findings must be texts")
    if not summary["rows"]:
        raise ValueError("no scorer")
    for row in summary["rows"]:
        if not all(isinstance(row[name], str) for name in ("scorer", "role", "contract")):
            raise ValueError("a row of a scorer must have scorer, role and contract as texts")


def open_suite(name: str) -> Suite:
    """Return a suite by its name and settings. Raise `UsageError` for a function, since the name may be untrusted."""
    if ":" in name:
        raise UsageError(f"'{name}' is not the name of a suite")
    return build("benchmarks.suites", name)


def sections_of(suite: str, subsets: Sequence[str]) -> dict[str, list[str]]:
    """Return a mapping section -> subsets. Empty if the suite or a subset is unknown."""
    if len(subsets) > MOST_SUBSETS:
        return {}
    from ...benchmarks.statistics.figures import section_members

    try:
        return section_members(open_suite(suite), subsets)
    except ValueError:
        return {}


# ---- two runs ----


def case_hash(case: Case) -> str:
    """Return a hash of all stored fields of a case, such as prompt, responses and correct responses."""
    texts = [case.prompt, [completion_json(answer) for answer in case.answers]]
    labels = [case.best, case.values, case.sets, case.preferences]
    return content_hash([case.id, *texts, case.subset, case.cluster, *labels])


def shared_cases(first: Finished, second: Finished) -> list[Case]:
    """Return the common cases of two runs in the order of the first. Raise `DataError` if a case differs."""
    check_suites(first.folder, first.suite.name, second.folder, second.suite.name)
    other = {case.id: case for case in second.cases}
    shared = [case for case in first.cases if case.id in other]
    changed = next((case.id for case in shared if case_hash(case) != case_hash(other[case.id])), None)
    check_shared(first.folder, second.folder, len(shared), changed)
    return shared


def check_suites(first: Path, suite: str, second: Path, other: str) -> None:
    """Raise `UsageError` if two runs have different suites."""
    if suite != other:
        raise UsageError(f"{first} is a run of {suite}, {second} of {other}; compare runs of one suite")


def check_shared(first: Path, second: Path, shared: int, changed: str | None) -> None:
    """Raise `DataError` if two runs have no common case, or if a common case differs between them."""
    if not shared:
        raise DataError(f"{first} and {second} have no case in common; compare runs of the same data")
    if changed is not None:
        raise DataError(f"case '{changed}' is not the same in {first} and {second}; run both on the same data")


def compare_runs(
    first: str, second: str, *, scorers: Sequence[str] = (), samples: int = 1000, seed: int = 0
) -> "ScorerComparison":
    """Compare the second run folder with the first on their common cases.

    `scorers` is one name for both runs, or a name for each run. Default: the only model of each run.
    """
    from ...benchmarks.compare import check_samples

    check_samples(samples)
    runs = [open_finished(first), open_finished(second)]
    cases = shared_cases(*runs)
    if len(scorers) > 2:
        raise UsageError(f"--scorer takes one name, or a name for each of the two runs, got {len(scorers)}")
    names = [*scorers, *scorers][:2] or [None, None]
    before, after = ((run, run.model(name)) for run, name in zip(runs, names, strict=True))
    return compare_finished(before, after, cases, samples=samples, seed=seed)


def compare_finished(
    first: tuple[Finished, str],
    second: tuple[Finished, str],
    cases: Sequence[Case],
    *,
    samples: int = 1000,
    seed: int = 0,
) -> "ScorerComparison":
    """Compare a scorer of the second run with a scorer of the first run on their common cases. See `compare`."""
    from ...benchmarks.compare import compare

    before, after = labels(first, second)
    comparison = compare(
        first[0].suite,
        cases,
        (before, first[0].of(first[1], cases)),
        (after, second[0].of(second[1], cases)),
        samples=samples,
        seed=seed,
    )
    only_first, only_second = (len(run.cases) - len(cases) for run, _ in (first, second))
    note = part_of([*first[0].summary["notes"], *second[0].summary["notes"]])
    row_of = {case.id: number for number, case in enumerate(first[0].cases, start=1)}
    flips = tuple(replace(flip, row=row_of[flip.case]) for flip in comparison.flips)
    return replace(comparison, flips=flips, note=note, only_first=only_first, only_second=only_second)


def labels(first: tuple[Finished, str], second: tuple[Finished, str]) -> list[str]:
    """Return labels of two scorers: their names. Equal names get the run's name in front, equal run names the path."""
    names = [scorer for _, scorer in (first, second)]
    if names[0] != names[1]:
        return names
    folders = [run.folder for run, _ in (first, second)]
    runs = [folder.name for folder in folders]
    if not all(runs) or (runs[0] == runs[1] and folders[0] != folders[1]):
        runs = [str(folder) for folder in folders]
    return [f"{run}/{scorer}" for run, scorer in zip(runs, names, strict=True)]


# ---- many runs ----


def rank_runs(runs: Mapping[str, Finished], *, samples: int, seed: int) -> "Board":
    """Rank the scorers of runs on the same cases. `runs` maps the name of a run to the run."""
    from ...benchmarks.leaderboard import board

    first = next(iter(runs.values()))
    labels, judged = name_scorers(runs)
    note = part_of(first.summary["notes"])
    by_label = {label: judged[side] for side, label in labels.items() if side in judged}
    return board(first.suite, first.cases, by_label, runs=[*runs], note=note, samples=samples, seed=seed)


def name_scorers(runs: Mapping[str, Finished]) -> tuple[dict[tuple[str, str], str], dict[tuple[str, str], Judged]]:
    """Return the label of each (run, scorer), and the role and judgments of the first scorer with each label.

    Scorers with equal names and judgments share a label. If only the names are equal, the label includes the run.
    """
    first = next(iter(runs.values()))
    by_scorer: dict[str, dict[str, Judged]] = {}
    owner: dict[tuple[str, str], str] = {}
    for run_name, run in runs.items():
        for row in run.summary["rows"]:
            scorer, judged = row["scorer"], (row["role"], run.of(row["scorer"], first.cases))
            distinct = by_scorer.setdefault(scorer, {})
            owner[run_name, scorer] = next(
                (name for name, judgments in distinct.items() if judgments == judged), run_name
            )
            distinct.setdefault(owner[run_name, scorer], judged)
    labels = {
        (run_name, scorer): scorer if len(by_scorer[scorer]) == 1 else f"{scorer} ({home})"
        for (run_name, scorer), home in owner.items()
    }
    return labels, {
        (name, scorer): judged for scorer, judgments in by_scorer.items() for name, judged in judgments.items()
    }
