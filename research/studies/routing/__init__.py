"""Routing study: choosing between reward models and an LLM judge before asking, against a cascade, on JudgeBench."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ....benchmarks.statistics.cluster_bootstrap import Draws, cluster_draws
from ...statistics.routing import cascade_share, cost_curve, pre_route_share, sampled_areas
from .._design import assess_samples, assessment_facts, claims_figure, paired_differences, read_claims
from .._runs.job_cache import run_jobs
from .._study import Log, Study
from ..real_text_guides.models import TextBase, corpus
from .judges import CHEAP, Judged, judged, stored
from .rankings import CASCADE, FITTED, GROUP, Classifier, PromptStates, Rankings, fixed_rankings, group_rankings
from .report import Measured, Results, curves_figure, text

SEEDS = 3
SAMPLES = 4000
AREA, AT_HALF = "normalised area", "accuracy at half of the price"
PRICE, CHEAP_PRICES, CLAIMED = 0.5, (0.01, 0.1, 0.3), 0.1
"""Price per case and prices of the cheap judge, in units of the strong judge's; the claims are about `CLAIMED`."""
PRICED = ("metadata", CASCADE)


@dataclass(frozen=True)
class Plan:
    """Sizes of the study."""

    seeds: tuple[int, ...] = tuple(range(SEEDS))
    samples: int = SAMPLES
    base_steps: int = 150
    """Training steps of the language model from scratch."""
    classifier: Classifier = Classifier()
    C: float | None = None
    """Inverse regularisation of the probes; None chooses it by cross-validation."""

    @classmethod
    def short(cls) -> "Plan":
        """Return a plan for a dry run: everything runs, with too few steps to learn."""
        return cls((0, 1), 200, 2, Classifier(hidden=16, layers=1, max_length=64, epochs=1), C=0.1)


def routing(
    data: Path, cache: Path, *, seed: int = 0, workers: int = 2, rows: int | None = None, log: Log = print
) -> Study:
    """Rank JudgeBench's pairs by every routing rule and measure what each ranking gains at every budget.

    `data` holds JudgeBench with stored judgments, and the texts of `real_text_guides`, on which a small language model
    is trained for its hidden states. `rows` shortens everything, for a dry run.
    """
    plan = Plan() if rows is None else Plan.short()
    source = stored(data, rows)
    base = TextBase(corpus(data, rows), seed=seed, hidden=64, layers=2, steps=plan.base_steps)
    states = PromptStates(source, base)
    jobs = [Rankings(source, states, seed + number, plan.classifier, plan.C) for number in plan.seeds]
    for some in ([base], [states], jobs):
        run_jobs(some, cache, workers, log)
    log("bootstrap")
    material = judged(source)
    rankings = {rule: np.stack([job.result(cache)[rule] for job in jobs]) for rule in FITTED}
    rankings |= {rule: ranked[None] for rule, ranked in fixed_rankings(material).items()}
    rankings[GROUP] = group_rankings(material, [job.seed for job in jobs])
    results = measure(material, rankings, plan.samples, seed)
    claims = read_claims("routing")
    samples = {
        claim.name: results.measured[claim.metric, claim.arm].mean_samples
        - results.measured[claim.metric, claim.control].mean_samples
        for claim in claims
    }
    assessments = assess_samples(claims, paired_differences(claims, results.by_seed()), samples, results.questions)
    figures = {"curves": curves_figure(material, results), "effects": claims_figure(assessments)}
    facts = {"claims": assessment_facts(assessments), **results.facts()}
    return Study(text(material, results, assessments), [*source.files, *base.data.files], figures, {}, facts)


def measure(material: Judged, rankings: Mapping[str, np.ndarray], samples: int, seed: int) -> Results:
    """Measure the areas of rankings [F, cheap judges, M] by rule, and accuracies at a price, over questions."""
    draws = cluster_draws(np.array([case.cluster for case in material.cases]), samples, seed)
    measured = {(AREA, rule): areas(material, ranked, draws) for rule, ranked in rankings.items()}
    for q in CHEAP_PRICES:
        name = AT_HALF if q == CLAIMED else f"{AT_HALF}, cheap judge {q:g}"
        for rule in PRICED:
            share = cascade_share(PRICE, q) if rule == CASCADE else pre_route_share(PRICE, q)
            measured[name, rule] = accuracies(material, rankings[rule], share, draws)
    return Results(max(map(len, rankings.values())), draws.clusters, rankings, measured)


def areas(material: Judged, ranked: np.ndarray, draws: Draws) -> Measured:
    """Return the normalised areas of rankings [F, cheap judges, M]."""
    once = Draws(np.ones((1, draws.clusters), np.uint16), draws.cluster)
    cheap = [material.cheap[name] for name in CHEAP]

    def over(some: Draws, rows: np.ndarray) -> np.ndarray:
        return np.stack([sampled_areas(c, material.strong, rows[:, k], some) for k, c in enumerate(cheap)])

    return Measured(np.stack([over(once, row[None])[:, 0] for row in ranked]), over(draws, ranked))


def accuracies(material: Judged, ranked: np.ndarray, share: float, draws: Draws) -> Measured:
    """Return the accuracies of rankings [F, cheap judges, M] with a share of the cases at the strong judge."""
    counts = draws.counts[:, draws.cluster].astype(np.float64)

    def over(row: np.ndarray, weights: np.ndarray) -> np.ndarray:
        curves = [cost_curve(material.cheap[c], material.strong, row[k], counts=weights) for k, c in enumerate(CHEAP)]
        return np.stack([curve.at(share) for curve in curves])

    values = np.stack([over(row, np.ones((1, counts.shape[1])))[:, 0] for row in ranked])
    return Measured(values, np.mean([over(row, counts) for row in ranked], axis=0))
