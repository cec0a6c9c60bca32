"""GRPO: a completion's reward minus the group's mean, divided by the group's standard deviation."""

from jaxtyping import Float
from torch import Tensor

from ..types import AdvantageEstimator, Rollout
from ._groups import groups, masked_advantages


def grpo(*, epsilon: float = 1e-4) -> AdvantageEstimator:
    """A_i = (r_i - mean_j r_j) / (std_j r_j + ε)                         Shao et al. 2024, arXiv:2402.03300, sec. 4.1.2

    The paper does not state the std's denominator; like TRL we use G - 1 and ε = 1e-4. Groups of equal rewards have
    advantage exactly 0.
    """

    def estimate(rewards: Float[Tensor, " N"], rollout: Rollout) -> Float[Tensor, " N"]:
        statistics = groups(rewards, rollout.group)
        return masked_advantages(statistics.standardised(rewards, epsilon), statistics.valid, rewards)

    return estimate
