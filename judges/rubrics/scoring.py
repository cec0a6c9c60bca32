"""Score functions of rubrics: gates, vetoes, weights, saturation and signed points."""

import math
from collections.abc import Callable, Mapping

from .rubric import Rubric

RubricScore = Callable[[Rubric, Mapping[str, float]], float]
"""Function from a rubric and the values in [0, 1] of its applicable criteria to a score.

A value of 1 means that the rule is kept, also for a rule that forbids.
"""


def gated(rubric: Rubric, values: Mapping[str, float]) -> float:
    """Return a score in [0, 1] with hard rules as gates: principles count only if all rules are kept.

    h = Σ w k / Σ w over the rules and p likewise over the principles, with weights w and values k (1 is kept). A
    principle with w < 0 counts |w| (1 - k). The score is 0 for a broken veto, h / 2 if h < 1, else (1 + p) / 2 (h
    without principles, p without rules). So a response that keeps every rule is above every response that breaks one.
    """
    if broken_veto(rubric, values):
        return 0.0
    rules = {rule.id: rule.weight for rule in rubric.rules if rule.id in values}
    principles = {principle.id: principle.weight for principle in rubric.principles if principle.id in values}
    if not rules or not principles:
        return signed_share(rules or principles, values)
    share = signed_share(rules, values)
    return share / 2 if share < 1 else (1 + signed_share(principles, values)) / 2


def broken_veto(rubric: Rubric, values: Mapping[str, float]) -> bool:
    """Return whether a rule with a veto is not fully met."""
    return any(rule.veto and values.get(rule.id, 1.0) < 1 for rule in rubric.rules)


def signed_share(weights: Mapping[str, float], values: Mapping[str, float]) -> float:
    """Return (Σ_{w>0} w k + Σ_{w<0} |w| (1 - k)) / Σ |w|, in [0, 1], for weights w and values k (arXiv:2605.12474).

    >>> signed_share({"a": 3.0, "b": -1.0}, {"a": 1.0, "b": 1.0})
    0.75
    """
    gained = sum(w * values[name] if w > 0 else -w * (1 - values[name]) for name, w in weights.items())
    if not weights:
        raise ValueError("no criterion applies, so there is nothing to score; abstain instead")
    return gained / sum(map(abs, weights.values()))


def weighted(rubric: Rubric, values: Mapping[str, float]) -> float:
    """Return the `signed_share` over all rules and principles. 0 for a broken veto."""
    weights = {item.id: item.weight for item in (*rubric.rules, *rubric.principles) if item.id in values}
    return 0.0 if broken_veto(rubric, values) else signed_share(weights, values)


def points(rubric: Rubric, values: Mapping[str, float]) -> float:
    """Return the points of the fulfilled criteria over the sum of positive points (RuscaRL, arXiv:2508.16949).

    Points are the weights of the principles. Negative points for harm can make the score negative. Criteria that do not
    apply stay in the denominator. This is HealthBench's score of one response (arXiv:2505.08775); its authors clip only
    the score of a model, which is the mean over cases, to [0, 1].
    """
    positive = sum(principle.weight for principle in rubric.principles if principle.weight > 0)
    if not positive:
        raise ValueError("points need a principle of positive weight; rules have no points")
    achieved = sum(principle.weight * values.get(principle.id, 0.0) for principle in rubric.principles)
    return achieved / positive


def saturated(value: float, rate: float) -> float:
    """Return (1 - exp(-rate v)) / (1 - exp(-rate)) for v in [0, 1], which is concave from 0 to 1.

    With rate 0, return v.

    >>> saturated(0.5, 0.0), round(saturated(0.5, 4.0), 4)
    (0.5, 0.8808)
    """
    if rate < 0:
        raise ValueError(f"the rate of saturation must be >= 0, got {rate}")
    return value if rate == 0 else math.expm1(-rate * value) / math.expm1(-rate)


def anchored(rate: float = 2.0, joint_weights: Mapping[tuple[str, str], float] | None = None) -> RubricScore:
    """Return the score function of Rubric Anchors (arXiv:2508.12790).

        1[no veto] (Σ_k w_k σ(s_k) + Σ_{k<l} w_kl s_k s_l) / (Σ_k w_k + Σ_{k<l} w_kl)

    s_k is the value of criterion k in [0, 1], w_k > 0 its weight, and σ is `saturated` at `rate`, so that no single
    criterion can dominate. `joint_weights` are the weights w_kl >= 0 of pairs of criteria. The paper describes the
    idea; the formula is ours.
    """
    joint = dict(joint_weights or {})
    if any(weight < 0 for weight in joint.values()):
        raise ValueError(f"joint weights must be >= 0, got {joint}")
    saturated(0.0, rate)

    def score(rubric: Rubric, values: Mapping[str, float]) -> float:
        weights = {item.id: item.weight for item in (*rubric.rules, *rubric.principles) if item.id in values}
        if not weights or min(weights.values()) < 0:
            raise ValueError(f"anchored scores need criteria with positive weights, got {weights}")
        if broken_veto(rubric, values):
            return 0.0
        pairs = {pair: weight for pair, weight in joint.items() if set(pair) <= set(weights)}
        alone = sum(weight * saturated(values[name], rate) for name, weight in weights.items())
        jointly = sum(weight * values[k] * values[l] for (k, l), weight in pairs.items())  # noqa: E741
        return (alone + jointly) / (sum(weights.values()) + sum(pairs.values()))

    return score


DEFAULT_SCORE = "gated"
SCORES: Mapping[str, RubricScore] = {
    "gated": gated,
    "weighted": weighted,
    "signed_points": points,
    "points": points,
    "anchored": anchored(),
}
"""Score functions by name."""
