"""Position-wise advantages: each step relative to the same step of the prompt's other completions."""

import torch
from jaxtyping import Float
from torch import Tensor

from ..types import AdvantageEstimator, Rollout, TokenEstimator
from ._groups import as_float, groups, masked_advantages
from ._steps import steps_of


def positionwise(*, least: int = 2, progress: bool = False, epsilon: float = 1e-4) -> AdvantageEstimator:
    """A_it = (r_ik - mean_j r_jk) / (std_j r_jk + ε) for the tokens t of step k      SCRL: Jiang 2026, arXiv:2605.22074

    r_ik is the reward of step k of completion i; j are the prompt's completions that have a step k. Other rewards of
    the completion, such as a verdict, are added to its last step. With `progress`, r_ik is the lowest reward of the
    steps up to k, so that verdicts count until the first wrong one, as in the paper. A step with fewer than `least`
    completions has advantage 0 (CM2's code sets `least` = 5; its steps are turns). With one step per completion the
    result equals `grpo`. Not implemented: the paper's division of a problem into verifiable subproblems.
    """
    if least < 2:
        raise ValueError(f"positionwise: `least` must be 2 or more completions, got {least}")

    def estimate(rewards: Float[Tensor, "N ..."], rollout: Rollout) -> Float[Tensor, "N L"]:
        steps = steps_of("positionwise", rewards, rollout)
        r = steps.rewards.scatter_add(1, steps.last, steps.outcome.nan_to_num(0)[:, None])
        r = r.cummin(1).values if progress else r
        positions = torch.arange(r.shape[1], device=r.device)
        key = torch.unique(rollout.group, return_inverse=True)[1][:, None] * r.shape[1] + positions
        flat = torch.where(steps.exists, r, torch.nan).flatten()
        statistics = groups(flat, key.flatten())
        enough = statistics.valid & (statistics.number >= least)
        advantages = masked_advantages(statistics.standardised(flat, epsilon), enough, flat).view_as(r)
        return steps.at_tokens(advantages, rollout.response).to(as_float(rewards).dtype)

    return TokenEstimator(estimate, reads=("steps",))
