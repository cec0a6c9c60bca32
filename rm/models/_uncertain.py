"""A reward model that gives a completion several rewards: what they come to as one, and how far they lie apart."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..contract.scoring_contract import ScoringContract
from ..types import Example
from ._combination import Combine, Members, Rule, combine_by, deviation


class MemberRewards(NamedTuple):
    """What the members say of N completions."""

    rewards: Members
    """[members, N, K]"""
    deviations: Members | None = None
    """Each member's own standard deviation, where it has one."""


class UncertainRewardModel(ABC):
    """Members that rate the same completions, and the rule by which their rewards become one."""

    contract: ScoringContract

    def __init__(self, rule: Rule):
        self.rule = rule
        self._combine: Combine = combine_by(rule)
        self._last: tuple[list[Example], MemberRewards] | None = None

    @abstractmethod
    def member_rewards(self, examples: Sequence[Example]) -> MemberRewards:
        """Every member's rewards."""

    def rate(self, examples: Sequence[Example]) -> np.ndarray:
        """Rewards [N, K]."""
        rewards = self.member_rewards(examples)
        self._last = list(examples), rewards
        return self._combine(*rewards)

    def spread(self, examples: Sequence[Example]) -> np.ndarray:
        """Every member's rewards [members, N, K]; those that `rate` was just asked about are not rated again."""
        if self._last is None or self._last[0] != list(examples):
            self._last = list(examples), self.member_rewards(examples)
        return self._last[1].rewards

    def facts(self) -> dict[str, float]:
        """How far the members lay apart on the completions that were rated last: where they differ, the reward is a
        guess.

        Mean and largest standard deviation over members, and the mean range, in units of reward.
        """
        if self._last is None or not len(self._last[0]):
            return {}
        rewards = self._last[1].rewards
        spread, extent = deviation(rewards), np.ptp(rewards, axis=0)
        return {
            "spread": float(spread.mean()),
            "spread_max": float(spread.max()),
            "range": float(extent.mean()),
        }
