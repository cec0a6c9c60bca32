"""Routing judge: a rule chooses between a cheap and a strong judge before any judge is called."""

import math
from collections.abc import Sequence

import numpy as np

from ....rm.errors import UsageError
from ....rm.kinds.ensemble.combination import UncertainRewardModel
from ....rm.types import RewardModel, content_hash, prompt_text
from ...judge import Judging, merge_judgments
from ...types import BatchJudge, Case, Criterion, Judgment, strictly_best
from .features import case_features
from .rule import Need, RoutingRule

ROUTED = "routed"
"""Name of the criterion with the probability and the reason of the choice. The probability is NaN if unknown."""


def route(
    cheap: BatchJudge,
    strong: BatchJudge,
    *,
    rule: RoutingRule,
    threshold: float | None = None,
    budget: float | None = None,
    reward_model: RewardModel | None = None,
    name: str = "",
) -> Judging:
    """Judge a case with the strong judge if the probability p_i that it is needed is high, else with the cheap judge.

    p_i is the rule's P(the strong judge is needed), from metadata and prompt, and from the margin and spread of
    `reward_model` if there is one. Set either `threshold` or `budget`, in [0, 1]. `threshold`: strong judge where p_i
    >= threshold. `budget`: strong judge for the floor(budget · N) cases of a call of N with the highest p_i. A case
    without p_i goes to the strong judge, even beyond the budget. The criterion `routed` records p_i and the rule's
    reason. After Pre-Route (Chen et al. 2026, arXiv:2605.10235).
    """
    limits = [(name, value) for name, value in (("threshold", threshold), ("budget", budget)) if value is not None]
    if len(limits) != 1 or not 0 <= limits[0][1] <= 1:
        raise UsageError(
            f"a routing judge needs either threshold or budget in [0, 1], got threshold {threshold} and budget {budget}"
        )
    if rule.needs and reward_model is None:
        raise UsageError(f"the {rule.name} reads the {rule.needs[0]} of a reward model; give reward_model")
    if "spread" in rule.needs and not isinstance(reward_model, UncertainRewardModel):
        raise UsageError(f"the {rule.name} reads the spread of a reward model's members; give an ensemble")

    def judge(cases: Sequence[Case]) -> list[Judgment]:
        needs = rule(case_features(cases, reward_model))
        to_strong = choose_strong(cases, [need.probability for need in needs], threshold, budget)
        judged: dict[int, Judgment] = {}
        for name, chosen_judge, indices in (
            ("cheap", cheap, np.flatnonzero(~to_strong)),
            ("strong", strong, np.flatnonzero(to_strong)),
        ):
            judgments = chosen_judge([cases[index] for index in indices]) if len(indices) else []
            for index, judgment in zip(indices, judgments, strict=True):
                judged[index] = _add_routing(cases[index], judgment, needs[index], f"{name} judge, by the {rule.name}")
        return [judged[index] for index in range(len(cases))]

    contracts = {"cheap": cheap.contract or cheap.name, "strong": strong.contract or strong.name}
    contracts |= {"rule": rule.contract, "reward_model": reward_model.contract.hash() if reward_model else None}
    settings = {"kind": "route", **contracts, "threshold": threshold, "budget": budget}
    return Judging(name or f"{cheap.name} or {strong.name}", settings, judge)


def choose_strong(
    cases: Sequence[Case], probabilities: Sequence[float], threshold: float | None, budget: float | None
) -> np.ndarray:
    """Return which cases [N] go to the strong judge. A hash of the case, not its index, breaks ties of probability.

    >>> cases = [Case(str(i), (), ("a", "b")) for i in range(4)]
    >>> choose_strong(cases, [0.2, 0.9, float("nan"), 0.4], 0.5, None).tolist()
    [False, True, True, False]
    >>> choose_strong(cases, [0.2, 0.9, float("nan"), 0.4], None, 0.5).tolist()
    [False, True, True, False]
    """
    p = np.array(probabilities, np.float64)
    unknown = np.isnan(p)
    if threshold is not None:
        return unknown | (p >= threshold)
    coins = [content_hash([prompt_text(case.prompt), *case.texts]) for case in cases]
    first = sorted(range(len(cases)), key=lambda index: (not unknown[index], -p[index], coins[index]))
    to_strong = unknown.copy()
    to_strong[first[: math.floor((budget or 0.0) * len(cases) + 1e-9)]] = True
    return to_strong


def _add_routing(case: Case, judgment: Judgment, need: Need, choice: str) -> Judgment:
    """Return the judgment with the routing choice, its reason and the cost of the rule's request added."""
    parts = [judgment] if need.request is None else [need.request, judgment]
    index = judgment.scores.index(max(judgment.scores)) if judgment.scores else 0
    criterion = Criterion(index, ROUTED, need.probability, f"{choice}: {need.reason}")
    return merge_judgments(case, judgment.scores or judgment.abstained, parts, [criterion])


def routing_counts(judgments: Sequence[Judgment]) -> dict[str, int]:
    """Count the routed judgments, judgments by the strong judge, and judgments without a probability from the rule."""
    routed = [criterion for judgment in judgments for criterion in judgment.criteria if criterion.name == ROUTED]
    return {
        "routed": len(routed),
        "to_strong": sum(criterion.evidence.startswith("strong judge") for criterion in routed),
        "undecided": sum(math.isnan(criterion.value) for criterion in routed),
    }


def is_right(case: Case, judgment: Judgment) -> bool:
    """Return whether every right response scores above every wrong one. An abstention or a tie is wrong."""
    return not judgment.abstained and strictly_best(case, judgment.scores) == 1


def strong_needed(cases: Sequence[Case], cheap: Sequence[Judgment], strong: Sequence[Judgment]) -> np.ndarray:
    """Return z [N] in {0, 1}: 1 if the cheap judge is wrong on a case and the strong judge is right."""
    judged = zip(cases, cheap, strong, strict=True)
    return np.array([is_right(case, b) and not is_right(case, a) for case, a, b in judged], np.int64)
