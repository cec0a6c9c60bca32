"""Study of two cheap reward models and every baseline on every suite, as reference figures."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from ...benchmarks.baselines import baselines_for
from ...benchmarks.evaluate import Evaluation, evaluate
from ...benchmarks.report import COLOURS, table
from ...benchmarks.types import Report, Row, Suite
from ...judges.types import Case
from ...rm.registry import load
from ...rm.types import Example
from ._study import Log, Study
from .human_preferences import KINDS, Job, as_scorer, run_jobs, training_pairs

SUITES = {
    "rewardbench": ["rewardbench_v1/*.parquet"],
    "rm_bench": ["rm_bench_public/*.gz"],
    "rmb": ["rmb_format_sample/*.gz"],
    "judgebench": ["judgebench/gpt-4o.jsonl.gz"],
    "llmbar": ["llmbar/llmbar__*.gz"],
    "ifbench": ["ifbench_pref/*.gz"],
    "evalbiasbench": ["evalbiasbench/*.json"],
    "xstest": ["xstest/xstest_v2_completions_*.csv.gz"],
    "pandalm": ["pandalm/testset-v1.json.gz"],
    "auto_j": ["auto_j/testdata_pairwise.jsonl.gz"],
    "best_of_16": ["bon16_tulu2_alpacaeval/bon16.jsonl.gz"],
}


class Loaded(NamedTuple):
    """A suite with its loaded cases, notes on them, and source files."""

    suite: Suite
    cases: list[Case]
    notes: list[str]
    sources: list[str]


def every_suite(
    data: Path, cache: Path, *, seed: int = 0, workers: int = 2, rows: int | None = None, log: Log = print
) -> Study:
    """Train the linear reward model and the small LM on human preferences and judge every suite that `data` holds.

    Training pairs whose prompt occurs in any of the suites are dropped and counted. `rows` shortens everything.
    """
    suites = {name: load_suite(name, data, rows) for name in SUITES}
    prompts = [case.prompt for suite in suites.values() for case in suite.cases]
    pairs, dropped, _ = training_pairs(data, prompts, rows)
    log(f"{len(pairs)} training pairs, {len(dropped)} dropped because their prompt is in a suite")
    examples = [Example(c.prompt, answer) for suite in suites.values() for c in suite.cases for answer in c.answers]
    jobs = {kind: Job(kind, f"{kind}, all pairs", pairs, examples, seed, cache) for kind in KINDS}
    n_cached = run_jobs([*jobs.values()], workers, log)
    rewards = {kind: _by_suite(np.load(job.file, allow_pickle=False), suites) for kind, job in jobs.items()}
    evaluations: dict[str, Evaluation] = {}
    for name, loaded in suites.items():
        log(f"aggregating {name}")
        models = [as_scorer(kind, loaded.cases, rewards[kind][name]) for kind in KINDS]
        scorers = [*models, *baselines_for(loaded.cases, seed)]
        evaluations[name] = evaluate(loaded.suite, loaded.cases, scorers, notes=loaded.notes, seed=seed)
    reports = {name: evaluation.report for name, evaluation in evaluations.items()}
    facts = {"pairs": len(pairs), "dropped": len(dropped), "models_found_in_the_cache": n_cached}
    sources = [source for suite in suites.values() for source in suite.sources]
    return Study(_text(reports, facts), sources, {"every_suite": _figure(reports)}, evaluations, facts)


def load_suite(name: str, data: Path, rows: int | None) -> Loaded:
    """Load a suite's cases from the folder of published data; about `rows` of them, evenly spread."""
    sources = [str(path) for pattern in SUITES[name] for path in sorted(data.glob(pattern))]
    suite = load("benchmarks.suites", name)(on_bad_row="skip")
    cases, notes = suite.cases(sources)
    return Loaded(suite, cases[:: max(1, len(cases) // rows)] if rows else cases, notes, sources)


def _by_suite(rewards: np.ndarray, suites: Mapping[str, Loaded]) -> dict[str, np.ndarray]:
    sizes = [sum(len(case.answers) for case in suite.cases) for suite in suites.values()]
    return dict(zip(suites, np.split(rewards, np.cumsum(sizes)[:-1]), strict=True))


# ---- report ----


def _text(reports: Mapping[str, Report], facts: Mapping[str, object]) -> str:
    names = list(dict.fromkeys(row.scorer for report in reports.values() for row in report.rows))
    lines = [[suite, str(report.cases), *(_cell(report, name) for name in names)] for suite, report in reports.items()]
    areas = [
        [suite, name, *(_area(row, name) for row in _rows(report, names))]
        for suite, report in reports.items()
        for name in report.rows[0].sections
    ]
    notes = [f"- {suite}: {note}" for suite, report in reports.items() for note in report.notes]
    return "\n".join(
        [
            "# Every suite: two cheap reward models and the baselines",
            "",
            f"Trained on {facts['pairs']} human preference pairs; {facts['dropped']} more were dropped because their "
            "prompt is in a suite. Overall figures in per cent with 95 % intervals (Wilson's, by prompts), "
            "aggregated as by each suite's authors. **Bold**: significantly better than every baseline. `≈`: a "
            "baseline is inside the model's interval. `<`: a baseline is significantly better.",
            "",
            "An interval is over prompts, not over trainings: trained on other pairs the small LM moves by more.",
            "",
            table(["suite", "cases", *names], lines),
            "",
            "![every suite](every_suite.png)",
            "",
            "## Sections",
            "",
            table(["suite", "section", *names], areas),
            "",
            "## Notes",
            "",
            *notes,
            "",
        ]
    )


def _rows(report: Report, names: Sequence[str]) -> list[Row | None]:
    by_scorer = {row.scorer: row for row in report.rows}
    return [by_scorer.get(name) for name in names]


def _area(row: Row | None, name: str) -> str:
    return "–" if row is None else f"{100 * row.sections[name].value:.1f}"


def _cell(report: Report, name: str) -> str:
    """Format the overall figure, with the comparison of a model and the baselines."""
    (row,) = _rows(report, [name])
    if row is None:
        return "–"
    if row.role == "baseline":
        return str(row.overall)
    gaps = [areas["overall"] for areas in row.minus_baseline.values()]
    baselines = [row.overall.value for row in report.rows if row.role == "baseline"]
    if any(gap.high < 0 for gap in gaps):
        return f"{row.overall} <"
    if any(row.overall.low <= value <= row.overall.high for value in baselines):
        return f"{row.overall} ≈"
    return f"**{row.overall}**" if all(gap.low > 0 for gap in gaps) else str(row.overall)


def _figure(reports: Mapping[str, Report]) -> Figure:
    """Plot one line per suite: models as dots with intervals, baselines as crosses."""
    drawing = Figure(figsize=(8, 0.9 + 0.42 * len(reports)), layout="constrained")
    panel = drawing.subplots()
    for index, report in enumerate(reports.values()):
        for row, shift in zip(report.rows, np.linspace(-0.25, 0.25, len(report.rows)), strict=True):
            value, low, high = (100 * number for number in row.overall)
            panel.plot([low, high], [index + shift] * 2, color=COLOURS[row.role], linewidth=1)
            panel.plot(value, index + shift, "o" if row.role == "model" else "x", color=COLOURS[row.role], markersize=4)
    panel.set_yticks(range(len(reports)), list(reports), fontsize=8)
    panel.invert_yaxis()
    panel.set_xlim(0, 100)
    panel.set_xlabel("overall, per cent, with 95 % interval: models blue, baselines grey", fontsize=8)
    return drawing
