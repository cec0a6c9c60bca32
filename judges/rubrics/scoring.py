"""Score functions of rubrics: gates, vetoes, weights, saturation and signed points."""

import math
from collections.abc import Callable, Mapping

from .rubric import Rubric

RubricScore = Callable[[Rubric, Mapping[str, float]], float]
"""Score from the values in [0, 1] of the criteria that apply; 1 is a rule kept (also one that forbids)."""
SCORES = ("gated", "weighted", "signed_points", "points", "anchored")
"""Names of the score functions."""


def gated(rubric: Rubric, values: Mapping[str, float]) -> float:
    """In [0, 1]: hard rules are gates, and principles count only behind them.

    h = sum w k / sum w over the rules (k = 1 kept), p likewise over the principles, a negative weight counting 1 - k;
    0 if a veto is broken, h / 2 if h < 1, else (1 + p) / 2; without principles h, without rules p.
    An answer that keeps every rule is above every answer that breaks one.
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
    """(sum_{w>0} w k + sum_{w<0} |w| (1 - k)) / sum |w|, in [0, 1]                        arXiv:2605.12474

    >>> signed_share({"a": 3.0, "b": -1.0}, {"a": 1.0, "b": 1.0})
    0.75
    """
    gained = sum(w * values[name] if w > 0 else -w * (1 - values[name]) for name, w in weights.items())
    if not weights:
        raise ValueError("no criterion applies, so there is nothing to score; abstain instead")
    return gained / sum(map(abs, weights.values()))


def weighted(rubric: Rubric, values: Mapping[str, float]) -> float:
    """`signed_share` over rules and principles alike; 0 if a veto is broken."""
    weights = {item.id: item.weight for item in (*rubric.rules, *rubric.principles) if item.id in values}
    return 0.0 if broken_veto(rubric, values) else signed_share(weights, values)


def points(rubric: Rubric, values: Mapping[str, float]) -> float:
    """RuscaRL: points of the criteria met / sum of the positive points; below 0 for harm done       arXiv:2508.16949

    Points are the principles' weights. Criteria that do not apply stay in the denominator, as with HealthBench's
    authors, who score a response alike.
    """
    positive = sum(principle.weight for principle in rubric.principles if principle.weight > 0)
    if not positive:
        raise ValueError("points need a principle of positive weight, and rules have no points")
    achieved = sum(principle.weight * values.get(principle.id, 0.0) for principle in rubric.principles)
    return achieved / positive


signed_points = points
"""HealthBench's score of one response (arXiv:2505.08775). Its authors clip the mean over the cases to [0, 1], which is
the figure of a model, and never the score of a case."""


def saturated(value: float, rate: float) -> float:
    """(1 - exp(-rate v)) / (1 - exp(-rate)): concave from 0 to 1 for rate > 0, v itself for rate 0.

    >>> saturated(0.5, 0.0), round(saturated(0.5, 4.0), 4)
    (0.5, 0.8808)
    """
    if rate < 0:
        raise ValueError(f"a rate of saturation is >= 0, got {rate}")
    return value if rate == 0 else math.expm1(-rate * value) / math.expm1(-rate)


def anchored(rate: float = 2.0, joint_weights: Mapping[tuple[str, str], float] | None = None) -> RubricScore:
    """Rubric Anchors: 1[no veto] (sum_k w_k σ(s_k) + sum_{k<l} w_kl s_k s_l) / (sum_k w_k + sum w_kl)  arXiv:2508.12790

    σ saturates at `rate`, so that no single dimension can be farmed; `together` are the weights w_kl >= 0 of what
    counts jointly. The paper tells the idea; the formula is ours. Weights have to be positive.
    """
    joint = dict(joint_weights or {})
    if any(weight < 0 for weight in joint.values()):
        raise ValueError(f"weights of what counts jointly are >= 0, got {joint}")
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
