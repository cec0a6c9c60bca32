"""Run folders as `rewardlab eval` writes them, of pairs whose scores are given."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from rewardlab.apps.runs.run_folder import write_json, write_manifest
from rewardlab.apps.runs.tables import write_items, write_scores
from rewardlab.benchmarks.evaluate import evaluate
from rewardlab.benchmarks.report import markdown
from rewardlab.benchmarks.scorers import StoredScores
from rewardlab.judges.types import Case
from rewardlab.rm.registry import load
from rewardlab.rm.types import user_turn

Scores = Mapping[str, tuple[float, ...] | str]


def pairs(number: int, lengths: tuple[int, int] = (8, 4)) -> list[Case]:
    """`c0`, `c1` ... in subsets a and b by turns; the first answer is right, and both are as long as is said."""
    right, wrong = ("x" * length for length in lengths)
    return [Case(f"c{k}", user_turn(f"question {k}"), (right, wrong), (0,), "ab"[k % 2]) for k in range(number)]


def margins(values: Sequence[float | None]) -> dict[str, tuple[float, ...] | str]:
    """Scores of `pairs`: the right answer has the margin and the wrong one 0; None abstains."""
    return {f"c{k}": "no reply" if value is None else (value, 0.0) for k, value in enumerate(values)}


def write_evaluation(
    folder: Path,
    cases: Sequence[Case],
    models: Mapping[str, Scores],
    *,
    nulls: Mapping[str, Scores] | None = None,
    suite: str = "",
) -> Path:
    """The folder of a finished run of a suite, or of the one that fits: RM-Bench for six answers, else pairs."""
    name = suite or ("rm_bench" if len(cases[0].answers) == 6 else "pairs")
    scorers = [StoredScores(name, scores) for name, scores in models.items()]
    scorers += [StoredScores(name, scores, role="baseline") for name, scores in (nulls or {}).items()]
    found = evaluate(load("benchmarks.suites", name)(), cases, scorers, samples=100)
    folder.mkdir(parents=True)
    (folder / "report.md").write_text(markdown(found.report))
    write_json(folder / "summary.json", asdict(found.report))
    write_items(found, folder)
    write_scores(found, folder)
    write_manifest(folder, data=[], seed=0, started=0.0)
    return folder
