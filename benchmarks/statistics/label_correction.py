"""Figures of a judge on many cases, corrected by labels for a few of them: prediction-powered, Rogan-Gladen, isotonic.

The labelled cases must be a random sample of all cases. Labels y [n] and predictions f [n] belong to the labelled
cases, predictions g [N] of the others.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import stats

from ...judges.audit.confidence_intervals import effective_interval
from .cluster_bootstrap import LEVEL

Ends = tuple[float, float] | None
"""Range of a figure, or None if it has no bounds."""
SHARE: Ends = (0.0, 1.0)


class Corrected(NamedTuple):
    """A corrected figure with its interval; if there is no estimate, NaN with the whole range as interval."""

    value: float
    low: float
    high: float
    unclipped: float
    """The estimate before it was clipped to the figure's range."""
    power: float
    """Weight λ of the predictions in [0, 1]: 0 is the mean of the labels alone. NaN for Rogan-Gladen."""
    labels: int
    cases: int
    """Number of all cases, labelled or not."""
    per_label: float
    """a in Var(n) = a / n + b, the variance of the estimate with n labels."""
    floor: float
    """b in Var(n) = a / n + b, which no number of labels lowers."""

    @property
    def width(self) -> float:
        """Width of the interval."""
        return self.high - self.low

    def labels_for(self, width: float, level: float = LEVEL) -> int | None:
        """Return the approximate total number of labels for an interval of this width: n = a / ((width / 2z)² - b).

        z is the normal quantile at (1 + level) / 2. None if labels for all cases do not suffice: add cases.
        """
        variance = (width / (2 * stats.norm.ppf((1 + level) / 2))) ** 2 - self.floor
        number = self.per_label / variance if variance > 0 else np.inf
        if self.width > width and number <= self.labels:  # labels that all agree have no variance
            number = self.labels * (self.width / width) ** 2
        return int(np.ceil(number)) if number <= self.cases else None


def prediction_powered(
    labels: Float[np.ndarray, " n"],
    predictions: Float[np.ndarray, " n"],
    others: Float[np.ndarray, " N"],
    *,
    ends: Ends = SHARE,
    power: float | None = None,
    clusters: tuple[Sequence[str], Sequence[str]] | None = None,
    level: float = LEVEL,
) -> Corrected:
    """Estimate the mean of y over all cases by prediction-powered inference (Angelopoulos et al., arXiv:2301.09633).

        θ = mean(y) + λ (mean(g) - mean(f)),   Var = λ² Var(g) / N + Var(y - λ f) / n

    By default λ is the power-tuned weight of PPI++ (arXiv:2311.01453, example 6.1), clipped to [0, 1]; for large n, it
    makes the estimate at least as precise as the estimate from labels alone:

        λ = Cov(y, f) / ((1 + n/N) Var(f, g))

    An accuracy or a win rate is the mean of credits in `ends` = [0, 1]. `clusters` are names of the prompts of the
    labelled and of the other cases: Var is then the sum over prompts of squared sums of the cases' deviations. The
    interval is `effective_interval` with Student's quantile of the m clusters with a label. The variance of the labels'
    part has the factor m / (m - 2), as λ is fitted too. In a range [a, b], (λ (b - a) / m)² is added, as if one more
    label had differed from its prediction: a judge that never erred on a few labels may still err. With n of all T
    cases labelled, the variance is about

        Var(n) = Var(y) ((1 - ρ²) / n + ρ² / T)     at the tuned λ, for ρ = Corr(y, f)

    NaN with fewer than three labelled clusters. Without other cases the predictions have no effect.
    """
    n, total = len(labels), len(labels) + len(others)
    in_labelled, in_others = clusters or (range(n), range(n, total))
    m = len({*in_labelled})
    if m < 3:
        return _undefined(ends, n, total)
    mean, ratio = (float(others.mean()), n / len(others)) if len(others) else (0.0, 0.0)
    spread = float(np.var([*predictions, *others], ddof=1)) if len(others) else 0.0
    slope = float(np.cov(labels, predictions)[0, 1]) / spread if spread else 0.0  # λ for n << N
    slope = (1 + ratio) * min(max(slope / (1 + ratio), 0.0), 1.0) if power is None else power
    power = slope / (1 + ratio) if power is None else power
    residuals = labels - power * predictions
    deviations = np.concatenate([
        np.sqrt(m / (m - 2)) * (residuals - residuals.mean()) / n, power * (others - mean) / max(len(others), 1)
    ])  # fmt: skip
    _, cluster = np.unique([*in_labelled, *in_others], return_inverse=True)
    unseen = (power * (ends[1] - ends[0]) / m) ** 2 if ends else 0.0
    variance = float((np.bincount(cluster, deviations) ** 2).sum()) + unseen
    floor = slope**2 * spread / total
    parts = max(n * (variance - floor), 0.0), floor
    return _corrected(float(residuals.mean()) + power * mean, variance, m, ends, power, (n, total), parts, level)


def _corrected(
    value: float,
    variance: float,
    clusters: int,
    ends: Ends,
    power: float,
    sizes: tuple[int, int],
    parts: tuple[float, float],
    level: float,
) -> Corrected:
    """Return an estimate with its interval, both clipped to the figure's range."""
    if ends is None:
        half = float(stats.t.ppf((1 + level) / 2, clusters - 1) * np.sqrt(variance))
        return Corrected(value, value - half, value + half, value, power, *sizes, *parts)
    inside = min(max(value, ends[0]), ends[1])
    low, high = effective_interval(inside, variance, clusters, ends, level)
    return Corrected(inside, low, high, value, power, *sizes, *parts)


def _undefined(ends: Ends, labels: int, cases: int) -> Corrected:
    """Return a correction that has NaN as its value and the figure's whole range as its interval."""
    nan, bounds = float("nan"), ends or (-np.inf, np.inf)
    return Corrected(nan, *bounds, nan, nan, labels, cases, nan, nan)


class Rate(NamedTuple):
    """A number of hits among a number of trials."""

    hits: int
    trials: int

    def share(self, more: float = 0.0) -> float:
        """Return the share of hits after adding `more` hits and `more` misses."""
        return (self.hits + more) / (self.trials + 2 * more)


def rogan_gladen(positive: Rate, sensitivity: Rate, specificity: Rate, *, level: float = LEVEL) -> Corrected:
    """Estimate the share of truly positive cases from a judge's binary verdicts (Rogan & Gladen 1978).

        p = (q + sp - 1) / J,   J = se + sp - 1

    q is the judge's share of `positive` verdicts on cases without a label, and se on cases with a positive label; sp is
    the share of negative verdicts on cases with a negative label. The labelled cases may have another share of
    positives, but must have the same error rates. The interval is that of Lang & Reiczigel (2014, Prev. Vet. Med. 113)
    with se' and sp' after one more hit and miss each, q' after z²/2 more of each, and p' and J' from these:

        p' + d ± z √Var,   Var = (q'(1 - q') / (n_q + z²) + p'² v_se + (1 - p')² v_sp) / J'²
        v_se = se'(1 - se') / (n_se + 2),   v_sp = sp'(1 - sp') / (n_sp + 2),   d = 2z² (p' v_se - (1 - p') v_sp)

    z is the normal quantile and n_x the number of cases behind x. Estimate and interval are clipped to [0, 1]. The
    value is NaN and the interval [0, 1] if J or J' is not above 0 (the judge is not shown to be better than chance) or
    if the interval lies outside [0, 1] (the verdicts contradict the error rates).
    """
    sizes = sensitivity.trials + specificity.trials, positive.trials + sensitivity.trials + specificity.trials
    if not min(positive.trials, sensitivity.trials, specificity.trials):
        return _undefined(SHARE, *sizes)
    z = float(stats.norm.ppf((1 + level) / 2))
    q, se, sp = positive.share(z**2 / 2), sensitivity.share(1), specificity.share(1)
    raw, informed = sensitivity.share() + specificity.share() - 1, se + sp - 1
    if raw <= 0 or informed <= 0:
        return _undefined(SHARE, *sizes)
    value = (positive.share() + specificity.share() - 1) / raw
    p = (q + sp - 1) / informed
    v_se, v_sp = se * (1 - se) / (sensitivity.trials + 2), sp * (1 - sp) / (specificity.trials + 2)
    by_labels = (p**2 * v_se + (1 - p) ** 2 * v_sp) / informed**2
    by_cases = q * (1 - q) / (positive.trials + z**2) / informed**2
    centre, half = p + 2 * z**2 * (p * v_se - (1 - p) * v_sp), z * np.sqrt(by_labels + by_cases)
    if centre + half < 0 or centre - half > 1:
        return _undefined(SHARE, *sizes)
    inside, low, high = (float(np.clip(end, 0, 1)) for end in (value, centre - half, centre + half))
    parts = sizes[0] * by_labels, by_cases
    return Corrected(inside, min(low, inside), max(high, inside), value, float("nan"), *sizes, *parts)


def isotonic(
    labels: Float[np.ndarray, " n"],
    scores: Float[np.ndarray, " n"],
    others: Float[np.ndarray, " N"],
    *,
    folds: int = 5,
    seed: int = 0,
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " N"]]:
    """Calibrate scores by isotonic regression on the labels; return the predictions of labelled and of other cases.

        f_i = h_-k(i)(score_i),   g_j = mean_k h_k(score_j),   h_k = argmin Σ_{i not in fold k} (y_i - h(score_i))²

    h is non-decreasing. The predictions of labelled cases come from the other folds, so that `prediction_powered` may
    take both (cross-prediction, Zrnic & Candès 2024, arXiv:2309.16598).
    """
    from sklearn.isotonic import IsotonicRegression

    fold = np.random.default_rng(seed).permutation(len(labels)) % min(folds, len(labels))
    calibrated, of_others = np.empty(len(labels)), []
    for part in np.unique(fold):
        fitted = IsotonicRegression(out_of_bounds="clip").fit(scores[fold != part], labels[fold != part])
        calibrated[fold == part] = fitted.predict(scores[fold == part])
        of_others.append(fitted.predict(others))
    return calibrated, np.mean(of_others, axis=0)
