"""Report of the study: gold of the selections beside their controls, and coverage of the intervals."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

from ....benchmarks.report import table
from ...statistics.estimates import t_interval
from .._runs.job_cache import Arrays
from .._runs.proxies import HELD_OUT
from .._runs.sampled import best_of_all, selection_gains
from .runs import GOLD, MODEL, SELECTORS


class Measured(NamedTuple):
    """What the report is computed from; lists are over seeds."""

    proxies: Sequence[Arrays]
    selections: Mapping[str, Sequence[Arrays]]
    """Results of `sample_best` by selector."""
    coverages: Mapping[int, Sequence[Arrays]]
    """Simulations by the number of prompts."""


def text(plan: str, measured: Measured) -> str:
    """Return the report in Markdown."""
    accuracy = t_interval(np.array([float(proxy[HELD_OUT]) for proxy in measured.proxies]))
    parts = [
        "# Best of 16 in the garden",
        plan,
        "## Gold of the best",
        f"The reward model decides {accuracy.formatted('.3f')} of held-out pairs as gold does.",
        _selections(measured.selections),
        "Gold and characters of the selected completion minus those of the random one of the same prompt; the expected "
        "gain in gold is over the mean completion, from all 16. Means over prompts with Student's 95 % interval over "
        f"seeds (standard deviation of gold among a prompt's completions: {_deviation(measured):.2f}).",
        _against(measured.selections),
        "## Intervals of the expected gain",
        *(_coverage(number, jobs) for number, jobs in measured.coverages.items()),
        "Share of the simulations whose 95 % interval contains the truth, with Wilson's interval, and the lowest share "
        "of a seed. Bias: mean estimate minus truth.",
        LIMITS,
    ]
    return "\n\n".join(parts) + "\n"


def _gold(jobs: Sequence[Arrays]) -> np.ndarray:
    """Return the gold gain over the random selection, by seed."""
    return np.array([selection_gains(job, GOLD).mean() for job in jobs])


def _deviation(measured: Measured) -> float:
    return float(np.mean([job[GOLD].std(axis=1, ddof=1).mean() for job in measured.selections[MODEL]]))


def _selections(selections: Mapping[str, Sequence[Arrays]]) -> str:
    rows = []
    for name, jobs in selections.items():
        expected = np.array([best_of_all(job, name, GOLD).value for job in jobs])
        lengths = np.array([selection_gains(job, "length").mean() for job in jobs])
        cells = [t_interval(values).formatted("+.3f") for values in (_gold(jobs), expected, lengths)]
        rows.append([SELECTORS[name], *cells])
    return table(["best by", "gold over random", "expected gain in gold", "characters over random"], rows)


def _against(selections: Mapping[str, Sequence[Arrays]]) -> str:
    rows = [
        [f"reward model minus {SELECTORS[name]}", t_interval(_gold(selections[MODEL]) - _gold(jobs)).formatted("+.3f")]
        for name, jobs in selections.items()
        if name != MODEL
    ]
    return table(["difference", "gold over random"], rows)


def _coverage(prompts: int, jobs: Sequence[Arrays]) -> str:
    rows = []
    for name in (MODEL, GOLD):
        for index, n in enumerate(jobs[0]["n"]):
            truths = [float(job[f"{name} truth"][index]) for job in jobs]
            inside = [_contains(job[name][:, index], truth) for job, truth in zip(jobs, truths, strict=True)]
            biases = [job[name][:, index, 0].mean() - truth for job, truth in zip(jobs, truths, strict=True)]
            hits = np.concatenate(inside)
            low, high = stats.binomtest(int(hits.sum()), len(hits)).proportion_ci(method="wilson")
            share = f"{hits.mean():.3f} [{low:.3f}, {high:.3f}]"
            cells = [f"{np.mean(truths):.3f}", share, f"{min(map(np.mean, inside)):.3f}", f"{np.mean(biases):+.4f}"]
            rows.append([SELECTORS[name], str(n), *cells])
    header = ["gain in", "n", "truth, mean", f"inside, {prompts} prompts", "lowest seed", "bias"]
    return table(header, rows)


def _contains(gains: np.ndarray, truth: float) -> np.ndarray:
    return (gains[:, 1] <= truth) & (truth <= gains[:, 2])


LIMITS = """## Limits

- Policies of 100,000 weights in a toy world; one reward model of one accuracy a seed.
- The interval is over prompts, as if they were a sample from many; the truth of the simulations is over 48."""
