"""`rewardlab eval`: evaluate models, references and baselines on a benchmark."""

import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ....benchmarks.evaluate import evaluate
from ....benchmarks.report import markdown
from ....benchmarks.scorers import load_stored, open_scorer, short_names
from ....benchmarks.suites._suite import stratified_sample
from ....benchmarks.suites.pairs import open_suite
from ....benchmarks.types import TFIDF, Report, Scorer, part_of
from ....judges.kinds.reward_model import RewardScorer
from ....rm.contract.loading_settings import edges
from ....rm.data.preference_vectors import parse_preference
from ....rm.errors import UNREADABLE, UsageError
from ....rm.io.checked_files import from_json
from ....rm.kinds.scalar.foreign import classes_of
from ....rm.registry.specs import parse_spec
from ....rm.types import OVERALL
from ...runs.evaluation_files import write_evaluation
from ...runs.evaluation_resume import PROGRESS, ResumableScorer, write_plan
from ...runs.model_hashes import model_hashes
from ...runs.processes import process, shared_run_folder
from ...runs.run_folder import MANIFEST, log, log_report, recipe_of, trust_option, write_manifest
from ...runs.trackers import log_figures, report_figures
from ...serving.open_model import is_served, open_served
from .settings import EvalConfig


def run_eval(config: EvalConfig) -> dict[str, Any]:
    """Evaluate the models, the references and every baseline on a suite, and write the run folder."""
    started, here = time.time(), process(config.processes, "eval")
    options: dict[str, Any] = {"objective": _pair_label(config)} if config.benchmark == "pairs" else {}
    suite = open_suite(config.benchmark, config.on_bad_row, **options)
    sources = config.data or [suite.hub]
    if not all(sources):
        raise UsageError(f"--data is missing; '{config.benchmark}' has no data set of its own on the Hub")
    recipe = _recipe(config, sources) if here.leads else {}
    folder_options = {"overwrite": config.overwrite, "resume": config.resume, "keep": f"{PROGRESS}/*/*.jsonl"}
    with shared_run_folder(config.output, recipe, here, **folder_options) as work:
        available, notes = suite.cases(sources)
        cases, of_limit = stratified_sample(available, config.limit)
        models = _open_models(config)
        resumable = [ResumableScorer(model, work / PROGRESS / f"{i:03d}", here) for i, model in enumerate(models)]
        if not here.leads:
            for scorer in resumable:
                scorer.work(cases)
            return {"run": config.output, "rank": here.rank, "processes": here.world}
        write_plan(work, len(cases), len(models))
        baselines = suite.baselines(cases, config.seed, config.baselines)
        stored = [load_stored(source, suite, available, config.on_bad_row) for source in config.scores]
        notes = [
            *of_limit,
            *notes,
            *_absent_baselines_note(config.baselines, baselines),
            *(note for scores in stored for note in scores.notes(available)),
        ]
        for source in config.model:
            if collapsed := ", ".join(_guide(source).get("collapsed", [])):
                notes.append(f"{source}: the guide has collapsed at {collapsed}: it nearly ignores its context there.")
        evaluation = evaluate(
            suite,
            cases,
            [*resumable, *stored, *baselines],
            notes=notes,
            samples=config.bootstrap_samples,
            seed=config.seed,
            progress=lambda name: log(f"scoring {len(cases)} cases with {name}"),
        )
        write_evaluation(evaluation, work)
        contracts = {model.name: model.contract for model in models}
        facts = {"contracts": contracts, **_partly_read_counts(evaluation.report)} | _guides(models, config.model)
        write_manifest(work, data=sources, seed=config.seed, started=started, suite=suite.name, **facts)
        shutil.rmtree(work / PROGRESS, ignore_errors=True)
    log_report(markdown(evaluation.report))
    log_figures(config.report_to, Path(config.output), report_figures(evaluation.report), recipe)
    return {
        "run": config.output,
        "suite": suite.name,
        "cases": len(cases),
        "part": part_of(evaluation.report.notes),
        "processes": here.world,
        "overall": {row.scorer: row.overall._asdict() for row in evaluation.report.rows},
        **_partly_read_counts(evaluation.report),
    }


def _absent_baselines_note(names: Sequence[str], baselines: Sequence[Scorer]) -> list[str]:
    """Return a note that lists the named baselines that do not exist for the suite's cases. Empty if all exist."""
    named = {TFIDF if name == "tfidf" else name for name in names} - {"all", "none"}
    absent = sorted(named - {baseline.name for baseline in baselines})
    return [f"These cases have no baseline {', '.join(absent)}."] if absent else []


def _recipe(config: EvalConfig, sources: Sequence[str]) -> dict[str, Any]:
    """Return the settings and file hashes that determine the judgments and must not change when a run is resumed."""
    free = ("resume", "overwrite", "processes", "report_to")
    recipe = recipe_of(config, free, [*sources, *config.scores])
    policy = [config.reference_policy] if config.reference_policy else []
    functions = [parse_spec(config.benchmark).name] if ":" in config.benchmark else []
    return recipe | {"model_sha256": model_hashes([*config.model, *config.reference, *policy, *functions])}


def _partly_read_counts(report: Report) -> dict[str, dict[str, int]]:
    """Return for each model the number of truncated cases and of cases with text that the chat template omitted."""
    rows = [row for row in report.rows if row.role != "baseline"]
    return {name: {row.scorer: vars(row)[name] for row in rows} for name in ("truncated", "omitted")}


def _guide(source: str) -> dict[str, Any]:
    """Return the diagnostics of a guide at the end of its training. Empty if the model is not a guide.

    A guide is an autoregressive reward model that guides decoding.
    """
    try:
        guide = from_json((Path(source) / MANIFEST).read_text(encoding="utf-8"))["guide"]
        return dict(guide) if guide["collapsed"] is not None else {}
    except UNREADABLE:  # no manifest of ours, or that of a model without a monitor
        return {}


def _guides(models: Sequence[RewardScorer], sources: Sequence[str]) -> dict[str, Any]:
    """Return the guides' diagnostics for the manifest. `models` are those of `sources`, then the references."""
    diagnostics = {model.name: _guide(source) for model, source in zip(models, sources, strict=False)}
    guides = {name: guide for name, guide in diagnostics.items() if guide}
    return {"guides": guides} if guides else {}


def _pair_label(config: EvalConfig) -> str:
    """Return the label to evaluate: the objective, or the overall label if the objective is a class of a classifier."""
    if config.objective is None or any(config.objective in classes_of(source) for source in config.model):
        return OVERALL
    return config.objective


def _open_models(config: EvalConfig) -> list[RewardScorer]:
    """Open the scorers of all configured models and references."""
    refusals: dict[str, Any] = {"on_long": config.on_long, "on_bad_row": config.on_bad_row}
    reading: dict[str, Any] = {"objective": config.objective, "kind": config.read_as}
    reading |= edges(config) | trust_option(config) | refusals
    reading |= {"reference": config.reference_policy} if config.reference_policy else {}
    reading |= {"preference": parse_preference(config.preference)} if config.preference else {}
    scorers = [
        _served_scorer(name, config) if is_served(name) else open_scorer(name, **reading) for name in config.model
    ]
    scorers += [open_scorer(name, role="reference") for name in config.reference]
    short_names(scorers)
    return scorers


def _served_scorer(name: str, config: EvalConfig) -> RewardScorer:
    """Open the scorer of a served model. Raise `UsageError` for settings that only a local model can have."""
    for flag in ("read_as", "reference_policy", "preference", "bos", "eos"):
        if vars(config)[flag]:
            raise UsageError(f"{name} is loaded by its server; leave --{flag} out")
    several = [model for model in config.model if is_served(model)]
    label = "served" if len(several) == 1 else f"served {1 + several.index(name)}"
    refusals: Any = {"on_long": config.on_long, "on_bad_row": config.on_bad_row}
    return RewardScorer(label, open_served(name), objective=config.objective, **refusals)
