"""CCPO, solver phase: mix of rewards with and without a thought, weighted by the past gain due to thoughts."""

import math

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from ..types import Rewards, Rollout, State, Transform
from .ccpo_thinker import DECAY, EPSILON, LEAST, check_settings, deviation, update_moments, z_score


def ccpo_solver(
    *, reward: str, eta: float = 1.0, decay: float = DECAY, least: int = LEAST, epsilon: float = EPSILON
) -> Transform:
    """r = g z_joint + (1 - g) z_solo,  g = σ(η μ_Δ / (σ_Δ + ε))                   CCPO 2026, arXiv:2603.21563, v1

    For `--rollouts 'ccpo(thinker=PATH)'`: the first half of a group's completions are generated with a thought, the
    second half without a thought. The i-th completions of the two halves form a pair with rewards R_joint and R_solo;
    Δ = R_joint - R_solo. z_joint and z_solo are R_joint and R_solo, normalised by mean and standard deviation over the
    previous steps (`ccpo_thinker`); σ is the logistic function, μ_Δ and σ_Δ mean and standard deviation of Δ. Rewards
    are unchanged for the first `least` pairs. Ours: both completions of a pair get r; the released code trains only the
    completion with the thought.
    """
    check_settings("ccpo_solver", decay, least)

    def change(state: State, rewards: Rewards, rollout: Rollout) -> tuple[State, Rewards]:
        r, joint, other = rewards[reward], *halves(rollout.group)
        with_it, alone = torch.where(joint, r, r[other]), torch.where(joint, r[other], r)
        pairs = {"delta": with_it - alone, "joint": with_it, "solo": alone}
        if state["seen"] >= least:
            g = gate(state["delta"], eta, epsilon)
            z = [z_score(state[name], pairs[name], epsilon) for name in ("joint", "solo")]
            rewards = rewards.replaced(reward, g * z[0] + (1 - g) * z[1])
        return update_moments(state, {name: values[joint] for name, values in pairs.items()}, decay), rewards

    return Transform("reward", change, start={"seen": 0})


def gate(delta: tuple[float, float] | list[float], eta: float, epsilon: float) -> float:
    """Return the gate g in (0, 1) from mean and variance of Δ. It is above 1/2 if thoughts have helped on average.

    >>> round(gate((0.5, 0.25), 1.0, 1e-6), 4), gate((0.0, 0.25), 1.0, 1e-6)
    (0.7311, 0.5)
    """
    return 0.5 * (1 + math.tanh(eta * delta[0] / (deviation(delta, epsilon) + epsilon) / 2))


def halves(group: Int[Tensor, " N"]) -> tuple[Bool[Tensor, " N"], Int[Tensor, " N"]]:
    """Return a mask of the rows in the first half of their group, and the row index of each row's pair partner.

    >>> [part.tolist() for part in halves(torch.tensor([0, 0, 0, 0, 1, 1]))]
    [[True, True, False, False, True, False], [2, 3, 0, 1, 5, 4]]
    """
    same = group[:, None] == group
    number, rank = same.sum(1), same.tril(-1).sum(1)
    if (number % 2).any():
        odd = int(number[number % 2 == 1][0])
        raise ValueError(f"ccpo_solver: pairs need groups of even size, got {odd}; set an even --num_generations")
    joint = 2 * rank < number
    target_index = torch.where(joint, rank + number // 2, rank - number // 2)
    return joint, (same & (rank == target_index[:, None])).to(torch.uint8).argmax(1)
