"""Assessment of a study's claims by its design: effects, intervals, p-values and verdicts."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from scipy import stats

from ....benchmarks.report import table
from ....benchmarks.statistics.cluster_bootstrap import (
    Estimate,
    formatted_p,
    t_interval,
)
from ....benchmarks.statistics.multiple_tests import holm, holm_levels
from ....rm.errors import DataError
from ...statistics.forest import Effect, forest
from ...statistics.percentile_tests import at_floor, bootstrap_p, unrejected_interval
from ...statistics.power import detectable_effect, look_levels, paired_sd
from .claims import Claim
from .design import Design

SIGNIFICANT = {"higher": ("better", "worse"), "lower": ("worse", "better"), "different": ("higher", "lower")}
"""Direction of a claim -> words for an effect above and below 0."""


class Assessment(NamedTuple):
    """A claim's effect, arm minus control, and what it shows."""

    claim: Claim
    differences: np.ndarray
    """By seed; NaN is a seed without a value."""
    effect: Estimate
    level: float
    """Confidence level of the interval: that of Holm's test at this look."""
    p: float
    """Two-sided, adjusted for looks and, by Holm's method, for the family."""
    detectable: float
    """Smallest effect that these seeds could show, by their own standard deviation."""
    significant: bool
    items: int | None = None
    """Number of clusters of items that were resampled; None if the test is over seeds."""
    at_most: bool = False
    """Whether p is the smallest that so few bootstrap samples can have."""

    @property
    def seeds(self) -> int:
        """Number of seeds with a value."""
        return len(_known(self.differences))

    @property
    def equivalent(self) -> bool:
        """Whether the interval lies within ± the smallest effect: two one-sided tests (Schuirmann 1987), a claim each.

        As the interval has the level 1 - α and not 1 - 2 α, each test is at α / 2.
        """
        return self.effect.low > -self.claim.smallest_effect and self.effect.high < self.claim.smallest_effect

    @property
    def verdict(self) -> str:
        """What the claim's differences show."""
        if np.isnan(self.p):
            return "not measured"
        if self.significant:
            above, below = SIGNIFICANT[self.claim.direction]
            word = f"significantly {above if self.effect.value > 0 else below}"
            return f"{word}, by less than the smallest effect" if self.equivalent else word
        rest = "equivalent within the smallest effect" if self.equivalent else "inconclusive"
        return f"no significant difference: {rest}"


def assess(design: Design, differences: Mapping[str, np.ndarray]) -> dict[str, Assessment]:
    """Assess all claims of a design by their differences [S], arm minus control by seed (`paired_differences`).

    S is the number of seeds at one of the design's looks; a seed without a value is NaN. The test is at the level α_k
    of that look, p is p_t · α / α_k, and Holm's method adjusts it within the family; a claim without differences still
    counts in its family. A family whose claims are all significant at a look is decided and needs no further seeds.
    """
    unknown = differences.keys() - {claim.name for claim in design.claims}
    if unknown:
        raise DataError(f"differences of {', '.join(sorted(unknown))}, which the design does not claim")
    assessed: dict[str, Assessment] = {}
    for family in dict.fromkeys(claim.family for claim in design.claims):
        claims = [claim for claim in design.claims if claim.family == family]
        assessed |= _assess_family(design, claims, [differences.get(claim.name, np.array([])) for claim in claims])
    return {claim.name: assessed[claim.name] for claim in design.claims}


def _assess_family(design: Design, claims: Sequence[Claim], values: Sequence[np.ndarray]) -> dict[str, Assessment]:
    look_alpha = np.array([_look_alpha(design, given) for given in values])
    p = np.minimum(np.array([_t_test_p(given) for given in values]) * design.alpha / look_alpha, 1)
    confidence = 1 - (1 - holm_levels(p, design.alpha)) * look_alpha / design.alpha
    return {
        claim.name: Assessment(
            claim,
            given,
            t_interval(given, level),
            float(level),
            float(adjusted),
            detectable_effect(_sd(given), len(_known(given)), 1 - level, design.power),
            bool(adjusted < design.alpha),
        )
        for claim, given, level, adjusted in zip(claims, values, confidence, holm(p), strict=True)
    }


def _look_alpha(design: Design, differences: np.ndarray) -> float:
    """Return the level of the look at this number of differences; α for none."""
    levels = dict(zip(design.look_seeds, look_levels(design.looks, design.alpha), strict=True))
    number = len(differences)
    if number and number not in levels:
        raise DataError(
            f"differences at {number} seeds; the design looks after {', '.join(map(str, levels))}. State a seed "
            "without a value as NaN, or give the design the seeds that were run"
        )
    return levels.get(number, design.alpha)


def _known(differences: np.ndarray) -> np.ndarray:
    return differences[~np.isnan(differences)]


def _sd(differences: np.ndarray) -> float:
    return paired_sd(differences) if len(_known(differences)) > 1 else np.nan


def _t_test_p(differences: np.ndarray) -> float:
    """Return the two-sided p of Student's paired t-test; NaN for fewer than two seeds."""
    known = _known(differences)
    error = _sd(differences) / np.sqrt(max(len(known), 1))
    if error == 0:
        return 0.0 if known[0] else 1.0
    return float(2 * stats.t.sf(abs(known.mean()) / error, len(known) - 1)) if len(known) > 1 else np.nan


def assess_samples(
    claims: Sequence[Claim],
    differences: Mapping[str, np.ndarray],
    samples: Mapping[str, np.ndarray],
    items: int,
    *,
    alpha: float = 0.05,
    power: float = 0.8,
) -> dict[str, Assessment]:
    """Assess claims about a fixed set of items, whose uncertainty is that of the items and not of seeds.

    `samples` [S] are bootstrap samples of a claim's difference over `items` clusters; `differences` its values by seed,
    such as those of folds, whose mean is the effect. p is the bootstrap's, adjusted by Holm's method within the family;
    the interval has the level of that test. The smallest detectable effect is (z_{1-α/2} + z_power) times the standard
    deviation of the samples, α at that level.
    """
    assessed: dict[str, Assessment] = {}
    for family in dict.fromkeys(claim.family for claim in claims):
        members = [claim for claim in claims if claim.family == family]
        p = np.array([bootstrap_p(samples[claim.name]) for claim in members])
        for claim, level, adjusted in zip(members, holm_levels(p, alpha), holm(p), strict=True):
            drawn, value = samples[claim.name], float(np.mean(differences[claim.name]))
            quantiles = stats.norm.isf((1 - level) / 2) + stats.norm.ppf(power)
            assessed[claim.name] = Assessment(
                claim,
                np.asarray(differences[claim.name], np.float64),
                Estimate(value, *unrejected_interval(drawn, level)),
                float(level),
                float(adjusted),
                float(quantiles * np.nanstd(drawn)),
                bool(adjusted < alpha),
                items,
                at_floor(drawn),
            )
    return {claim.name: assessed[claim.name] for claim in claims}


# ---- report ----

SEEDS_NOTE = (
    "Brackets are Student's intervals over seeds at the level of the claim's test; p is two-sided, adjusted for looks "
    "and for the claims of its family (Holm)."
)
EQUIVALENT_NOTE = "Equivalent: the interval lies within ± the smallest effect of interest."


def claims_table(assessments: Mapping[str, Assessment], *, unit: str = "seeds", note: str = SEEDS_NOTE) -> str:
    """Return the table of all claims in Markdown, and a note on its intervals; `unit` names what was sampled."""
    header = ["claim", "metric", "arm minus control", "p", unit, "smallest effect of interest"]
    header += [f"smallest effect that these {unit} show", "verdict"]
    lines = [
        [
            f"`{name}`: {made.claim.claim}",
            made.claim.metric,
            made.effect.formatted("+.3f"),
            "–" if np.isnan(made.p) else formatted_p(made.p, made.at_most).strip("= "),
            _seeds(made),
            f"{made.claim.smallest_effect:g}",
            "–" if np.isnan(made.detectable) else f"{made.detectable:.3g}",
            made.verdict,
        ]
        for name, made in assessments.items()
    ]
    return f"{table(header, lines, right={*header[2:7]})}\n\n{note} {EQUIVALENT_NOTE}"


def _seeds(made: Assessment) -> str:
    if made.items is not None:
        return str(made.items)
    missing = len(made.differences) - made.seeds
    return f"{made.seeds} ({missing} without a value)" if missing else str(made.seeds)


def claims_figure(assessments: Mapping[str, Assessment]) -> Figure:
    """Plot every claim's effect with its interval, seeds and smallest effect of interest, a panel for each metric."""
    panels: dict[str, list[Effect]] = {}
    for name, made in assessments.items():
        effect = Effect(name, made.effect, made.differences, made.claim.smallest_effect)
        panels.setdefault(f"{made.claim.metric}: arm minus control", []).append(effect)
    return forest(panels)


def study_facts(
    design: Design, assessments: Mapping[str, Assessment], values: Mapping[str, Mapping[str, np.ndarray]]
) -> dict[str, Any]:
    """Return design, claims, and the values by metric, arm and seed in JSON types, for a manifest."""
    return {
        "design": design.facts(),
        "claims": assessment_facts(assessments),
        "values": {metric: {arm: by_seed.tolist() for arm, by_seed in arms.items()} for metric, arms in values.items()},
    }


def assessment_facts(assessments: Mapping[str, Assessment]) -> dict[str, Any]:
    """Return all claims, differences by seed, effects and verdicts in JSON types, for a manifest."""
    return {
        name: {
            "direction": made.claim.direction,
            "smallest_effect": made.claim.smallest_effect,
            "decided": made.claim.decided.isoformat(),
            "differences": made.differences.tolist(),
            "effect": made.effect._asdict(),
            "level": made.level,
            "p": made.p,
            "p_at_most": made.at_most,
            "detectable": made.detectable,
            "verdict": made.verdict,
        }
        for name, made in assessments.items()
    }
