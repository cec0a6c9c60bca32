"""PF-PPO: larger weights for completions whose rewards are more reliable."""

import torch
from jaxtyping import Float
from torch import Tensor

from ..types import Rollout, Scheduler, State

KINDS = ("power", "best_worst", "best_random")


def pf_ppo(kind: str, *, power: float = 2.0) -> Scheduler:
    """Weights by the rank or size of the reward s in its group            PF-PPO: Shen and Zhang 2024, arXiv:2409.06957

    power        w ∝ |s|^power
    best_worst   equal weights for the best and the worst of a group, 0 for the others
    best_random  weight 4 for the best of a group, 1 for the others

    Tied scores have equal weights: all completions with a group's highest score count as best. The weights are
    those of the released code. Here they are computed within groups, with mean 1 in each group.
    """
    if kind not in KINDS:
        raise ValueError(f"pf_ppo: kind must be one of {', '.join(KINDS)}, got {kind!r}")

    def schedule(state: State, scores: Float[Tensor, " N"], rollout: Rollout) -> tuple[State, Float[Tensor, " N"]]:
        weights = torch.zeros_like(scores)
        for number in rollout.group.unique():
            rows = ((rollout.group == number) & ~scores.isnan()).nonzero().squeeze(1)
            if len(rows):
                raw = _unscaled_weights(scores[rows], kind, power)
                weights[rows] = raw * len(rows) / raw.sum() if raw.sum() > 0 else torch.ones_like(raw)
        return state, weights

    return schedule


def _unscaled_weights(scores: Float[Tensor, " M"], kind: str, power: float) -> Float[Tensor, " M"]:
    """Return the weights of one group's completions before they are scaled to mean 1."""
    best = scores == scores.max()
    if kind == "power":
        return scores.abs() ** power
    if kind == "best_random":
        return torch.where(best, 4, 1).to(scores.dtype)
    return (best | (scores == scores.min())).to(scores.dtype)
