"""Run a study and write its report, figures and evaluations."""

import time
from collections.abc import Sequence
from inspect import signature
from pathlib import Path
from typing import Any

from ...apps.runs.evaluation_files import write_evaluation
from ...apps.runs.figures import save_figure
from ...apps.runs.run_folder import log, log_report, run_folder, seconds_since, write_manifest
from ...rm.errors import UsageError
from ...rm.registry import load


def run_study(
    name: str,
    *,
    output: str,
    data: str = "",
    cache: str = "~/.cache/rewardlab",
    seed: int = 0,
    workers: int = 2,
    rows: int | None = None,
    only: Sequence[str] = (),
    overwrite: bool = False,
) -> dict[str, Any]:
    """Run the study `name` of research/studies into the run folder `output`, which `rewardlab inspect` opens.

    `data` is the folder of a study that reads data, `cache` that of trained models, `workers` the number of
    single-threaded processes; `rows` truncates every dataset, for a quick trial; `only` names recipes of a study that
    has several. Returns the run folder, seconds and the overall results.
    """
    settings = dict(locals())
    started = time.time()
    study = load("research.studies", name)
    takes = signature(study).parameters
    if workers < 1:
        raise UsageError(f"--workers is at least 1, got {workers}")
    if only and "only" not in takes:
        raise UsageError(f"the study {name} has no recipes to choose from; leave --only out")
    if "data" in takes and not (data and Path(data).is_dir()):
        raise UsageError(f"no folder '{data}'; give the one that holds the study's data with --data")
    folders = [*([Path(data)] if "data" in takes else []), Path(cache).expanduser() / name]
    options: dict[str, Any] = {"seed": seed, "workers": workers, "rows": rows} | ({"only": only} if only else {})
    with run_folder(output, settings, overwrite=overwrite) as work:
        result = study(*folders, **options, log=log)
        (work / "report.md").write_text(result.text, encoding="utf-8")
        for figure, drawing in result.figures.items():
            save_figure(drawing, work / f"{figure}.png")
        for part, evaluation in result.evaluations.items():
            (work / part).mkdir()
            write_evaluation(evaluation, work / part)
        write_manifest(work, data=result.sources, seed=seed, started=started, study=name, **result.facts)
    log_report(result.text)
    overall = {
        part: {row.scorer: row.overall._asdict() for row in evaluation.report.rows}
        for part, evaluation in result.evaluations.items()
    }
    return {"run": output, "study": name, "seconds": round(seconds_since(started), 1), "overall": overall}
