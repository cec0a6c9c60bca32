"""`rewardlab study`: run a study and write its report, figures and evaluations."""

import time
from dataclasses import asdict
from inspect import signature
from pathlib import Path
from typing import Any

from ....rm.errors import UsageError
from ....rm.registry import load
from ...runs.evaluation_files import write_evaluation
from ...runs.figures import save_figure
from ...runs.run_folder import log, log_report, run_folder, seconds_since, write_manifest
from .settings import StudyConfig


def run_study(config: StudyConfig) -> dict[str, Any]:
    """Run a study and write what it returns; each evaluation gets a folder that `inspect` opens."""
    started = time.time()
    study = load("research.studies", config.name)
    cache, data = Path(config.cache).expanduser() / config.name, Path(config.data)
    takes = signature(study).parameters
    reads = "data" in takes
    if config.only and "only" not in takes:
        raise UsageError(f"the study {config.name} has no recipes to choose from; leave --only out")
    if reads and not (config.data and data.is_dir()):
        raise UsageError(f"no folder '{config.data}'; give the one that holds the study's data with --data")
    options: dict[str, Any] = {"seed": config.seed, "workers": config.workers, "rows": config.rows}
    options |= {"only": config.only} if config.only else {}
    with run_folder(config.output, asdict(config), overwrite=config.overwrite) as work:
        result = study(*([data] if reads else []), cache, **options, log=log)
        (work / "report.md").write_text(result.text, encoding="utf-8")
        for name, drawing in result.figures.items():
            save_figure(drawing, work / f"{name}.png")
        for name, evaluation in result.evaluations.items():
            (work / name).mkdir()
            write_evaluation(evaluation, work / name)
        write_manifest(work, data=result.sources, seed=config.seed, started=started, study=config.name, **result.facts)
    log_report(result.text)
    overall = {
        name: {row.scorer: row.overall._asdict() for row in evaluation.report.rows}
        for name, evaluation in result.evaluations.items()
    }
    return {"run": config.output, "study": config.name, "seconds": round(seconds_since(started), 1), "overall": overall}
