"""Rules that combine the rewards of several members, and the base class of models with members."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from ...contract.scoring_contract import ScoringContract
from ...errors import UsageError, did_you_mean
from ...registry.specs import parse_spec
from ...types import Example

Members = Float[np.ndarray, "M N K"]
Combine = Callable[[Members, Members | None], Float[np.ndarray, "N K"]]
"""Function from the members' rewards, and the standard deviations that they predict (or None), to rewards [N, K]."""


class MemberRule(NamedTuple):
    """A rule and its arguments, as stored in a model folder."""

    name: str = "mean"
    arguments: Mapping[str, float] = {}


def deviation(members: Members) -> Float[np.ndarray, "N K"]:
    """Return the members' standard deviation, sqrt(Σ_m (r_m - mean)² / M), in units of reward."""
    return members.std(axis=0)


def mean() -> Combine:
    """Average the members: r = Σ_m r_m / M."""
    return lambda members, _: members.mean(axis=0)


def lowest() -> Combine:
    """Take the minimum, r = min_m r_m: worst-case optimisation       Coste et al. 2023, arXiv:2310.02743"""
    return lambda members, _: members.min(axis=0)


def mean_std(weight: float) -> Combine:
    """r = mean_m r_m - λ std_m r_m, λ = `weight` >= 0; the paper subtracts the variance   arXiv:2310.02743"""
    if not weight >= 0:
        raise UsageError(f"mean_std: weight must be >= 0, got {weight}")
    return lambda members, _: members.mean(axis=0) - weight * deviation(members)


def softmin(beta: float) -> Combine:
    """r = -(1/β) log (Σ_m exp(-β r_m) / M): the mean at β = 0, the minimum at β = inf, decreasing in β

    Pessimistic reward of arXiv:2606.09073 (whose β is our 1/β), equal weights. `beta` >= 0, in 1 / units of reward.
    """
    if not beta >= 0:
        raise UsageError(f"softmin: beta must be >= 0, got {beta}")
    if beta == 0:
        return mean()
    if np.isinf(beta):
        return lowest()

    def combine(members: Members, _: Members | None) -> Float[np.ndarray, "N K"]:
        least = members.min(axis=0)
        with np.errstate(over="ignore"):  # exp(-inf) = 0: a member with an infinitely larger reward has no weight
            return least - np.log1p(np.expm1(-beta * (members - least)).mean(axis=0)) / beta

    return combine


def brme(share: float) -> Combine:
    """r = λ r_nominal + (1 - λ) min_m r_m,   λ = `share` in [0, 1]         Reward-robust RLHF, arXiv:2409.15360

    r_nominal is the reward of the member with the smallest predicted standard deviation; the mean if none is predicted.
    """
    if not 0 <= share <= 1:
        raise UsageError(f"brme: share must lie in [0, 1], got {share}")

    def combine(members: Members, deviations: Members | None) -> Float[np.ndarray, "N K"]:
        if deviations is None:
            nominal = members.mean(axis=0)
        else:
            nominal = np.take_along_axis(members, deviations.argmin(axis=0)[None], axis=0)[0]
        return share * nominal + (1 - share) * members.min(axis=0)

    return combine


RULES: dict[str, Callable[..., Combine]] = {
    "mean": mean,
    "min": lowest,
    "mean_std": mean_std,
    "softmin": softmin,
    "brme": brme,
}


def combine_by(rule: MemberRule) -> Combine:
    """Return the function of a rule; raise `UsageError` for an unknown name or wrong arguments."""
    if rule.name not in RULES:
        raise UsageError(f"unknown rule '{rule.name}' for combining members; {did_you_mean(rule.name, RULES)}")
    factory: Any = RULES[rule.name]
    parameters = [*signature(factory).parameters]
    if sorted(parameters) != sorted(rule.arguments):
        form = f"{rule.name}({', '.join(f'{name}=...' for name in parameters)})" if parameters else rule.name
        raise UsageError(f"the rule '{rule.name}' must be written as {form}, got {dict(rule.arguments)}")
    return factory(**rule.arguments)


def parse_rule(text: str) -> MemberRule:
    """Parse a rule, such as `mean_std(weight=1)`; raise a `UsageError` for an unknown one."""
    spec = parse_spec(text)
    try:
        rule = MemberRule(spec.name, {name: float(value) for name, value in spec.arguments.items()})
    except ValueError as error:
        raise UsageError(f"--combine {text}: its arguments must be numbers, as in mean_std(weight=1)") from error
    combine_by(rule)
    return rule


class MemberRewards(NamedTuple):
    """Rewards of N completions by every member."""

    rewards: Members
    """[members, N, K]"""
    deviations: Members | None = None
    """Standard deviation that each member predicts for its reward; None if members predict none."""


class UncertainRewardModel(ABC):
    """Members that rate the same completions, and a rule that combines their rewards."""

    contract: ScoringContract

    def __init__(self, rule: MemberRule):
        self.rule = rule
        self._combine: Combine = combine_by(rule)
        self._last: tuple[list[Example], MemberRewards] | None = None

    @abstractmethod
    def member_rewards(self, examples: Sequence[Example]) -> MemberRewards:
        """Return the rewards of every member."""

    def rate(self, examples: Sequence[Example]) -> np.ndarray:
        """Return the combined rewards [N, K]."""
        rewards = self.member_rewards(examples)
        self._last = list(examples), rewards
        return self._combine(*rewards)

    def spread(self, examples: Sequence[Example]) -> np.ndarray:
        """Return every member's rewards [members, N, K]; cached if `rate` was just called with these examples."""
        if self._last is None or self._last[0] != list(examples):
            self._last = list(examples), self.member_rewards(examples)
        return self._last[1].rewards

    def facts(self) -> dict[str, float]:
        """Return the members' disagreement on the last rated examples: mean and maximum SD, and mean range."""
        if self._last is None or not len(self._last[0]):
            return {}
        rewards = self._last[1].rewards
        spread, extent = deviation(rewards), np.ptp(rewards, axis=0)
        return {"spread": float(spread.mean()), "spread_max": float(spread.max()), "range": float(extent.mean())}
