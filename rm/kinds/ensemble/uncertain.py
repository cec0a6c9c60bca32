"""Base class of reward models with several members: combined reward, and the members' disagreement."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...contract.scoring_contract import ScoringContract
from ...types import Example
from .combination import Combine, Members, Rule, combine_by, deviation


class MemberRewards(NamedTuple):
    """Rewards of N completions by every member."""

    rewards: Members
    """[members, N, K]"""
    deviations: Members | None = None
    """Standard deviation that each member predicts for its reward; None if members predict none."""


class UncertainRewardModel(ABC):
    """Members that rate the same completions, and a rule that combines their rewards."""

    contract: ScoringContract

    def __init__(self, rule: Rule):
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
