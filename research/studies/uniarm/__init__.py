"""One guide that follows a preference (UniARM) compared with one guide per objective, with a known reward."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from ....benchmarks.types import Log, Study
from ...statistics.fronts import Measured, control_figure, divergence_figure, front_figure, shuffled, weight_figure
from ...worlds.guides.exact import Exact
from .._runs.job_cache import Job, run_jobs
from .plan import (
    TWO,
    WEIGHTS,
    Fronts,
    Plan,
    ablation_fronts,
    exact_jobs,
    main_fronts,
    three_fronts,
    weak_to_strong_fronts,
    weight_fronts,
)
from .report import text
from .results import Results, criteria, exact_results, measure, sizes

UNITS = "gold reward"


def uniarm(cache: Path, *, seed: int = 0, workers: int = 2, rows: int | None = None, log: Log = print) -> Study:
    """Train guides in worlds with a known reward function, and measure how well preferences control them.

    No data are read. Trained models and completions are stored in `cache`. `rows` shortens everything, for a dry run.
    """
    plan = Plan(seed) if rows is None else Plan.short(seed, rows)
    groups = {
        "main": main_fronts(plan),
        "three objectives": three_fronts(plan),
        "weak to strong": weak_to_strong_fronts(plan),
        "weights": weight_fronts(plan),
        "ablations": ablation_fronts(plan),
    }
    exact = {objectives: exact_jobs(plan, objectives) for objectives in (2, 3)}
    _run(groups, exact, cache, workers, log)
    log("aggregating")
    measured = {
        group: {name: measure(fronts, cache) for name, fronts in methods.items()} for group, methods in groups.items()
    }
    measured["main"]["shuffled UniARM"] = shuffled(measured["main"]["UniARM"], seed)
    results = Results(plan, measured, {k: exact_results(jobs, cache) for k, jobs in exact.items()}, sizes(plan, cache))
    facts = {
        "plan": asdict(plan),
        "must_hold": [
            dict(zip(("claim", "measured", "met"), criterion, strict=True)) for criterion in criteria(results)
        ],
        "fronts": {
            group: {name: method.as_json() for name, method in methods.items()} for group, methods in measured.items()
        },
    }
    return Study(text(results), [], figures(results), {}, facts)


def _run(
    groups: Mapping[str, Fronts],
    exact: Mapping[int, Mapping[str, Sequence[Exact]]],
    cache: Path,
    workers: int,
    log: Log,
) -> None:
    """Run the jobs of the bases, then of each group; jobs shared by groups run once."""
    fronts = {
        name: [front for of_method in methods.values() for front in of_method] for name, methods in groups.items()
    }
    guides = {name: [guide for front in of_group for guide in front.guides] for name, of_group in fronts.items()}
    bases = [front.base for of_group in fronts.values() for front in of_group]
    bases += [guide.base for of_group in guides.values() for guide in of_group]
    stages: list[tuple[str, Sequence[Job]]] = [("bases", bases)]
    for name in groups:
        stages += [(f"{name}: guides", guides[name]), (f"{name}: fronts", fronts[name])]
    stages += [("known optimum", [job for methods in exact.values() for jobs in methods.values() for job in jobs])]
    for name, jobs in stages:
        log(name)
        run_jobs(jobs, cache, workers, log)


# ---- figures ----


def figures(results: Results) -> dict[str, Figure]:
    """Plot fronts, control, divergence from the optimum and the weight sweep."""
    main, points = results.main, ("preference-blind", "shuffled UniARM", "untrained guide", "base alone")
    exact = results.exact[2]
    divergences = {name: result.guided[:, -1].mean(0) for name, result in exact.items()}
    any_method = exact["UniARM"]
    divergences |= {"untrained guide": any_method.guided[:, 0].mean(0), "base alone": any_method.base.mean(0)}
    lines = {name: method.front for name, method in main.items() if name not in points}
    controlled = {name: main[name].fronts for name in ("UniARM", "PARM", "GenARM", "preference-blind")}
    return {
        "fronts": front_figure(lines, {name: main[name].front for name in points}, TWO, UNITS),
        "control": control_figure(main["UniARM"].preferences, controlled, TWO, UNITS),
        "divergence": divergence_figure(any_method.share, divergences, any_method.seen),
        "weights": _weight_figure(results.groups["weights"]),
    }


def _weight_figure(methods: Mapping[str, Measured]) -> Figure:
    ends = np.array([method.ends() for method in methods.values()])
    panels = {
        UNITS: {f"{name} at its vertex": ends[:, axis].tolist() for axis, name in enumerate(TWO)},
        "share of repeated 3-grams": {"repetition": [method.means["repetition"] for method in methods.values()]},
        "nats per token": {
            "from the base": [method.means["divergence"] for method in methods.values()],
            "surprise of the base": [-method.means["base_logprob"] for method in methods.values()],
        },
    }
    return weight_figure(WEIGHTS, panels)
