"""LaSeR: sum of the verifier's reward and the policy's last-token self-reward, both normalised within the group."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from ..types import AdvantageEstimator, Rollout
from ._groups import groups, masked_advantages
from .grpo import grpo


def laser(
    weights: Sequence[float] | None = None,
    *,
    reference: float,
    beta: float = 0.1,
    spread: float = 0.1,
    epsilon: float = 1e-4,
) -> AdvantageEstimator:
    """A_i = w_1 z(r_i) + w_2 z(clip(s_i, 0, 1)),   s_i = β (ℓ_i - c)          LaSeR: Yang et al. 2025, arXiv:2510.14943

    Rewards are [N, 2]: the verifier's r, and ℓ = log π(token | x, y) in nats of a fixed unused token after completion y
    of prompt x. z normalises within the group: z(a) = (a - mean) / (std + ε). c = `reference` is the initial policy's
    mean ℓ: -23 for Qwen, -25 for OctoThinker in the released code; β = 0.1. For truncated completions s is 0. If the
    std of s in a group is at most `spread`, z(r) replaces z(s), as in the released code. `weights` w are those of
    --weight, 0.9 and 0.1 by default. A row with a missing r or ℓ has no effect, except that ℓ may be missing if w_2 =
    0.
    """
    shares = [0.9, 0.1] if weights is None else list(weights)
    if len(shares) != 2:
        raise ValueError(
            "laser: two rewards must have non-zero weights, the verifier's and the policy's log-probability, got "
            f"{len(shares)}; weight both, or use grpo for the verifier's reward alone"
        )

    def estimate(rewards: Float[Tensor, "N K"], rollout: Rollout) -> Float[Tensor, " N"]:
        if rewards.shape[1] != 2:
            raise ValueError(
                f"laser: needs two rewards, the verifier's and the policy's log-probability, got {rewards.shape[1]}"
            )
        if not shares[1]:
            return shares[0] * grpo(epsilon=epsilon)(rewards[:, 0], rollout)
        missing = rewards.isnan().any(1)
        r, self_rewards = rewards.double().masked_fill(missing[:, None], torch.nan).unbind(1)
        s = self_reward(self_rewards, beta, reference).clamp(0, 1)
        s = torch.where(rollout.finished | missing, s, 0)
        of_r, of_s = groups(r, rollout.group), groups(s, rollout.group)
        z, self_advantage = (part.standardised(reward, epsilon) for reward, part in ((r, of_r), (s, of_s)))
        self_advantage = torch.where(of_s.variance.sqrt() > spread, self_advantage, z)
        return masked_advantages(shares[0] * z + shares[1] * self_advantage, of_r.valid, rewards)

    return estimate


def self_reward(log_ratio: Float[Tensor, " N"], beta: float, reference: float) -> Float[Tensor, " N"]:
    """Compute the self-reward s = β (ℓ - c), which approximates the verifier's verdict after training.

    At test time s ranks completions at the cost of one token per completion.
    """
    return beta * (log_ratio - reference)
