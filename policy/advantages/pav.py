"""Process advantages: the progress of each step under a prover, added to the outcome of the completion."""

import torch
from jaxtyping import Float
from torch import Tensor

from ..types import AdvantageEstimator, Rollout, TokenEstimator
from ._groups import as_float, groups
from ._steps import steps_of


def pav(*, alpha: float, outcome: float = 1.0) -> AdvantageEstimator:
    """A_it = ω (R_i - mean_j R_j) + α (V_ik - V_i,k-1) for the tokens t of step k    PAV: Setlur 2024, arXiv:2410.08146

    V_ik is the step reward: the probability, under a prover policy, of a right completion after step k of completion i,
    from a process reward model. R_i are the completion's other rewards, such as a verdict; ω = `outcome`. With ω = 0
    A are the step advantages of Setlur 2024, arXiv:2406.14532. V_i0, the value before the first step, is the mean
    of V_j1 over the prompt's completions j (ours; the paper uses the prover's value). α has no default, because the
    paper's value is not known to us.
    """
    if not (alpha or outcome):
        raise ValueError("pav: alpha and outcome are both 0; set one of them, or all advantages are 0")

    def estimate(rewards: Float[Tensor, "N ..."], rollout: Rollout) -> Float[Tensor, "N L"]:
        steps = steps_of("pav", rewards, rollout)
        of_outcomes = groups(steps.outcome, rollout.group)
        first = groups(torch.where(steps.exists[:, 0], steps.rewards[:, 0], torch.nan), rollout.group).mean
        progress = steps.rewards.diff(dim=1, prepend=first[:, None])
        advantages = outcome * (steps.outcome - of_outcomes.mean).nan_to_num(0)[:, None] + alpha * progress
        advantages = torch.where(of_outcomes.valid[:, None], advantages, 0)
        return steps.at_tokens(advantages, rollout.response).to(as_float(rewards).dtype)

    return TokenEstimator(estimate, reads=("steps",))
