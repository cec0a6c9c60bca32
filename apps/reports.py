"""What can be done with finished runs: verify one, compare two, rank many."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..benchmarks import board as boards
from ..benchmarks import compare as comparing
from ..benchmarks.compare import Comparison
from ..benchmarks.evaluate import OVERALL, RANDOM_ALIKE, evaluate
from ..benchmarks.render import markdown
from ..benchmarks.scorers import StoredScores
from ..judges.types import Judgment
from ..rm.checkpoint import check_files
from ..rm.documents import from_yaml
from ..rm.errors import CheckFailed, UsageError
from .config import BoardConfig, CompareConfig, VerifyConfig
from .finished import Finished, compare_finished, open_finished, shared_cases
from .jobs import save_figure
from .runs import plain, run_folder, say, write_json

# ---- verify ----


def run_verify(config: VerifyConfig) -> dict[str, Any]:
    """Add every table up again from the per-item scores, or hash a model's files; a difference fails the check."""
    if (files := check_files(Path(config.run), whole=True)) is not None:
        return {"run": config.run, "verified": True, "files": files}
    run = open_finished(config.run)
    scorers = [
        StoredScores(
            row["scorer"],
            {name: one.abstained or one.scores for name, one in run.judgments[row["scorer"]].items()},
            role=row["role"],
            contract=row["contract"],
            both_orders=_asked_in_both_orders(row),
        )
        for row in run.summary["rows"]
    ]
    stored = {"interval": "percentile", **run.summary}  # what summaries had before they named it
    facts = {name: stored[name] for name in ("notes", "samples", "seed", "interval")}
    report = evaluate(run.suite, run.cases, scorers, **facts).report
    again = json.loads(json.dumps(plain(asdict(report))))
    if different := _different(again, stored):
        raise CheckFailed(f"{config.run}: {different} does not follow from the stored scores; the run has been changed")
    if markdown(report) != (run.folder / "report.md").read_text(encoding="utf-8"):
        raise CheckFailed(f"{config.run}: report.md does not follow from the stored scores; the run has been changed")
    return {"run": config.run, "verified": True, "cases": len(run.cases), "scorers": len(scorers)}


def _asked_in_both_orders(row: Mapping[str, Any]) -> bool:
    """Return whether the summary compares a scorer with chance asked the same way; runs of earlier versions do not."""
    differences = row.get("minus_null")
    return isinstance(differences, dict) and RANDOM_ALIKE in differences


def _different(found: Any, stored: Any, path: str = "summary.json") -> str | None:
    """The first place where two JSON values differ."""
    if isinstance(found, dict) and isinstance(stored, dict):
        places = ((name, found.get(name), stored.get(name)) for name in {**found, **stored})
    elif isinstance(found, list) and isinstance(stored, list) and len(found) == len(stored):
        places = ((str(i), a, b) for i, (a, b) in enumerate(zip(found, stored, strict=True)))
    else:
        return None if found == stored else path
    return next((one for name, a, b in places if (one := _different(a, b, f"{path} {name}"))), None)


# ---- compare ----


def run_compare(config: CompareConfig) -> dict[str, Any]:
    """The second run against the first; with --gate a drop beyond the rules fails the check."""
    if len(config.runs) != 2:
        raise UsageError(f"compare takes two runs, got {len(config.runs)}: rewardlab compare BEFORE AFTER")
    gate = read_gate(config.gate) if config.gate else []
    first, second = map(open_finished, config.runs)
    cases = shared_cases(first, second)
    if left := len(first.cases) + len(second.cases) - 2 * len(cases):
        say(f"{left} cases stand in one of the runs only and are left out")
    sides = [(run, run.model(config.scorer)) for run in (first, second)]
    found = compare_finished(sides[0], sides[1], cases, samples=config.samples, seed=config.seed)
    text = comparing.markdown(found)
    say(text)
    if config.output:
        with run_folder(config.output, asdict(config), overwrite=config.overwrite) as work:
            (work / "comparison.md").write_text(text, encoding="utf-8")
            write_json(work / "comparison.json", asdict(found))
    if broken := [sentence for rule in gate if (sentence := _broken(rule, found))]:
        raise CheckFailed("; ".join(broken))
    overall = found.areas[OVERALL]
    return {
        "first": found.first,
        "second": found.second,
        "cases": found.cases,
        "difference": overall.difference._asdict(),
        "p": overall.p,
        "real": overall.difference.real,
        "flips": len(found.flips),
    }


def read_gate(path: str) -> list[dict[str, Any]]:
    """Rules `- {area: overall, max_drop: 0.01}`; `area` is a section, a subset or overall."""
    try:
        rules = from_yaml(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: cannot be read as rules ({error})") from error
    good = isinstance(rules, list) and all(
        isinstance(rule, dict) and {"area", "max_drop"} <= {*rule} <= {"area", "max_drop", "even_if_noise"}
        for rule in rules
    )
    if not good:
        raise UsageError(f"{path}: rules are a list of {{area: overall, max_drop: 0.01, even_if_noise: false}}")
    return rules


def _broken(rule: Mapping[str, Any], found: Comparison) -> str | None:
    """What a rule says against a comparison: a drop beyond `max_drop` that is more than noise."""
    changes = {**found.subsets, **found.areas}
    if rule["area"] not in changes:
        raise UsageError(f"no area '{rule['area']}' in this comparison; there is {', '.join(changes)}")
    gap = changes[rule["area"]].difference
    if -gap.value <= rule["max_drop"] or not (gap.real or rule.get("even_if_noise")):
        return None
    return f"{rule['area']} fell by {-100 * gap.value:.1f} points, more than {100 * rule['max_drop']:.1f}"


# ---- board ----


def run_board(config: BoardConfig) -> dict[str, Any]:
    """A leaderboard of every run under a folder: one table per suite and set of cases."""
    runs = [open_finished(str(path.parent)) for path in sorted(Path(config.runs).rglob("summary.json"))]
    if not runs:
        raise UsageError(f"there is no finished run of rewardlab eval under {config.runs}")
    together: dict[tuple, list[Finished]] = {}
    for run in runs:
        together.setdefault((run.suite.name, tuple(case.id for case in run.cases)), []).append(run)
    made = [_board(group) for group in together.values()]
    with run_folder(config.output, asdict(config), overwrite=config.overwrite) as work:
        (work / "board.md").write_text(boards.markdown(made), encoding="utf-8")
        (work / "board.csv").write_text(boards.as_csv(made), encoding="utf-8")
        save_figure(boards.figure(made), work / "board.png")
    say(boards.markdown(made))
    return {"board": config.output, "runs": len(runs), "suites": [one.suite for one in made]}


def _board(runs: Sequence[Finished]) -> boards.Board:
    """Scorers of the same name with the same judgments are one; with other judgments they go by their run."""
    judged: dict[str, tuple[str, list[Judgment]]] = {}
    for run in runs:
        for row in run.summary["rows"]:
            found = (row["role"], run.of(row["scorer"], run.cases))
            name = row["scorer"] if judged.get(row["scorer"], found) == found else f"{run.folder.name}/{row['scorer']}"
            judged[name] = found
    return boards.board(runs[0].suite, runs[0].cases, judged)
