"""CDRRM study with a simulated judge and teacher: the effects of contrast, filter and training, with known labels."""

from dataclasses import asdict
from pathlib import Path

from .._runs.job_cache import run_jobs
from .._study import Log, Study
from .claims import claims
from .plan import POINTS, Plan, Results
from .report import figure, text


def cdrrm(cache: Path, *, seed: int = 0, workers: int = 2, rows: int | None = None, log: Log = print) -> Study:
    """Judge pairs with known labels under rubrics of several origins, over a sweep of a simulated judge's biases.

    No data are read. All results are stored in `cache`. `rows` shortens everything, for a dry run.
    """
    plan = Plan(seed) if rows is None else Plan.short(seed, rows)
    for name, jobs in plan.stages():
        log(name)
        run_jobs(jobs, cache, workers, log)
    results = Results.of(plan, cache)
    results_of_claims = claims(results)
    facts = {
        "plan": asdict(plan),
        "points": {name: asdict(biases) for name, biases in POINTS.items()},
        "claims": [claim._asdict() for claim in results_of_claims],
        "measures": results.as_json(),
    }
    return Study(text(results, results_of_claims), [], {"accuracy": figure(results)}, {}, facts)
