"""Power of paired comparisons over seeds, and levels of sequential looks.

A study compares two arms by their differences at S seeds with a two-sided paired t-test. Its power is computed from the
noncentral distribution of t, not from the normal approximation, which promises too much for few seeds.
"""

from collections.abc import Sequence

import numpy as np
from scipy import optimize, special, stats

from ...rm.errors import UsageError

UPPER = 0.8
"""Level of the upper limit of a pilot's standard deviation, as Browne proposes."""


def paired_sd(differences: np.ndarray) -> float:
    """Return the standard deviation of the differences [S] of two arms by seed; NaN values are left out."""
    known = differences[~np.isnan(differences)]
    if len(known) < 2:
        raise UsageError(f"{len(known)} pilot differences have no standard deviation; run at least 2 pilot seeds")
    return float(known.std(ddof=1))


def sd_upper_limit(sd: float, seeds: int, level: float = UPPER) -> float:
    """Return the upper confidence limit of a standard deviation: sd √((S - 1) / χ²_{1 - level}(S - 1)).

    The number of seeds for a pilot's `sd` reaches its power in about half of all studies only; the number for this
    limit reaches it in a share `level` of them (Browne 1995, Statistics in Medicine 14, 1933-1940).
    """
    return float(sd * np.sqrt((seeds - 1) / stats.chi2.ppf(1 - level, seeds - 1)))


def power(effect: float, sd: float, seeds: int, alpha: float = 0.05) -> float:
    """Return the chance that S paired seeds show a mean difference `effect` in either direction.

    P(F > t²_{1-α/2}(S - 1)) with F ~ F(1, S - 1; λ = S (effect / sd)²), the square of the noncentral t (Cohen 1988,
    Statistical Power Analysis, ch. 2). `effect` and `sd` have the same unit; sd > 0, S >= 2.

    >>> round(power(0.5, 1.0, 34), 3)
    0.808
    """
    critical = stats.t.isf(alpha / 2, seeds - 1) ** 2
    return float(1 - special.ncfdtr(1, seeds - 1, seeds * (effect / sd) ** 2, critical))


def detectable_effect(sd: float, seeds: int, alpha: float = 0.05, target: float = 0.8) -> float:
    """Return the smallest mean difference that S paired seeds show with the `target` power; NaN for fewer than 2.

    For a plan, `sd` is the pilot's; for a finished study its own. It depends on the measured effect in neither case, so
    it is not a "power of the observed effect".

    >>> round(detectable_effect(sd=0.2, seeds=20), 3)
    0.132
    """
    if seeds < 2:
        return np.nan
    highest = 1.0
    while power(highest, 1.0, seeds, alpha) < target:
        highest *= 2
    return sd * float(optimize.brentq(lambda effect: power(effect, 1.0, seeds, alpha) - target, 0, highest))


def seeds_needed(effect: float, sd: float, alpha: float = 0.05, target: float = 0.8) -> int:
    """Return the smallest number of paired seeds, at least 2, that show an `effect` > 0 with the `target` power.

    >>> seeds_needed(effect=0.1, sd=0.2)
    34
    """
    if not effect > 0:
        raise UsageError(f"an effect is above 0, got {effect:g}")
    if sd == 0:
        return 2
    normal = ((stats.norm.isf(alpha / 2) + stats.norm.ppf(target)) * sd / effect) ** 2  # below the exact number
    seeds = max(2, int(normal))
    while power(effect, sd, seeds, alpha) < target:
        seeds += 1
    return seeds


def look_levels(looks: Sequence[float], alpha: float = 0.05) -> tuple[float, ...]:
    """Return the level of the test at each look, for looks at increasing fractions of the seeds that end with 1.

    α_k = A(f_k) - A(f_{k-1}), A(f) = 2 - 2 Φ(z_{1-α/2} / √f): the error that O'Brien-Fleming spending allots to look k
    (Lan & DeMets 1983, Biometrika 70, 659-663). The levels sum to α, so the chance of any false positive is at most α
    by Boole's inequality, for every number of seeds and every joint distribution of the looks. Boundaries from the
    joint normal distribution (Jennison & Turnbull 2000, Group Sequential Methods, ch. 7) assume a known variance, which
    few seeds do not give. The price is small for few looks: with 2 the last is tested at .044 and not .049, with 4 at
    .026 and not .044.

    >>> [round(level, 4) for level in look_levels([0.5, 1])]
    [0.0056, 0.0444]
    """
    fractions = np.array([0.0, *looks])
    if not (np.diff(fractions) > 0).all() or fractions[-1] != 1:
        raise UsageError(f"looks are increasing fractions of the seeds that end with 1, got {[*looks]}")
    with np.errstate(divide="ignore"):
        spent = 2 * stats.norm.sf(stats.norm.isf(alpha / 2) / np.sqrt(fractions))
    return tuple(float(level) for level in np.diff(spent))
