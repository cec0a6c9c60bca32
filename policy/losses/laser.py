"""LaSeR: a policy loss, and the squared error of the policy's last-token self-reward from the verifier's verdict."""

from collections.abc import Callable

from torch import Tensor

from ...rm.registry.specs import build
from ..types import Rewards, Rollout
from ._kinds import AuxiliaryLoss


def laser(
    *, verdict: str, token: int, reference: float, beta: float = 0.1, weight: float = 0.1, loss: str = "ppo"
) -> AuxiliaryLoss:
    """L + λ Σ_i (s_i - v_i)² / (2 n_i),   s_i = β (log π(z | x, y_i) - c)           LaSeR: Yang 2025, arXiv:2510.14943

    L is the policy loss `loss`, λ = `weight`. z is the `token`, an id of a token that the policy does not use, after
    completion y of prompt x; its log-probability is at the sampling temperature. v in {0, 1} is the reward `verdict`,
    and n_i the number of completions of the generation with the same verdict. Truncated completions and those without
    a verdict have no second term. c = `reference` is that of `advantages.laser`. β, λ and the balance of the two
    classes are those of the released code, whose warm-up of 200 steps is left out. The reward `laser` measures
    log π(z | x, y) for the advantage.
    """
    if weight < 0 or token < 0:
        raise ValueError(f"laser: weight and the token id must be at least 0, got {weight} and {token}")

    def targets(rewards: Rewards, rollout: Rollout) -> tuple[Tensor, Tensor]:
        v = rewards[verdict]
        right, wrong = (rollout.finished & (v == kind) for kind in (1, 0))
        share = right / right.sum().clamp_min(1) + wrong / wrong.sum().clamp_min(1)
        return v.nan_to_num(0), weight * share / 2

    def compute(states: Tensor, target: Tensor, head: Callable[[Tensor], Tensor]) -> Tensor:
        return (beta * (head(states)[:, token] - reference) - target).square()

    return AuxiliaryLoss(build("policy.losses", loss), targets, compute)
