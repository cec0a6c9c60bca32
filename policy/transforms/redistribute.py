"""Return redistribution: a completion's reward, spread over its steps in proportion to their estimated contribution."""

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from ..types import Rewards, Rollout, State, Transform


def redistribute(*, reward: str, ridge: float = 0.0) -> Transform:
    """r'_k = c_k + (R - Σ_j c_j) / S of the S steps of a completion; the reward R itself becomes 0

    SPA-RL 2025 (arXiv:2505.20732): c_k = s_k is the score of step k by a process reward model, the paper's progress
    estimator. With `ridge` λ > 0, c_k = w_0 + w_1 s_k, fitted by ridge regression of R on (S, Σ_k s_k) over the
    completions of previous steps: the decoder of LaRe (arXiv:2412.11120) for one latent reward. c_k = 0 in the first
    step. The step rewards always sum to R (ours), so the estimate does not change the return. A completion without step
    scores keeps R; one without R keeps its step scores and stays missing. The weight of R does not apply to its steps.
    Not implemented: SPA's bonus for executable actions (add it as a reward), and LaRe's code that an LLM writes.
    """
    if ridge < 0:
        raise ValueError(f"redistribute: ridge must be at least 0, got {ridge}")

    def change(state: State, rewards: Rewards, rollout: Rollout) -> tuple[State, Rewards]:
        R, scores = rewards[reward].double(), rewards.step_rewards("redistribute")
        number, total = (~scores.isnan()).sum(1).double(), scores.double().nansum(1)
        scored = (number > 0) & ~R.isnan()
        weights = R.new_tensor(state["weights"] if ridge else [0.0, 1.0])
        c = weights[0] + weights[1] * scores
        rest = (R - weights[0] * number - weights[1] * total) / number.clamp_min(1)
        steps = torch.where(scored[:, None], c + rest[:, None], scores)
        changed = rewards.replaced(reward, torch.where(scored, 0, rewards[reward]))
        sums = torch.stack([number, total], 1)[scored]
        return _fit(state, sums, R[scored], ridge), replace(changed, steps=steps.to(scores.dtype))

    return Transform("reward", change, start={"weights": [0.0, 0.0]} if ridge else {})


def _fit(state: State, z: Float[Tensor, "M 2"], R: Float[Tensor, " M"], ridge: float) -> State:
    """Return the state after adding M completions with sums z: the moments of the regression, and its weights."""
    if not ridge:
        return state
    moments, targets = z.T @ z, z.T @ R
    if "moments" in state:
        moments, targets = moments + z.new_tensor(state["moments"]), targets + z.new_tensor(state["targets"])
    weights = torch.linalg.solve(moments + ridge * torch.eye(2).to(moments), targets)
    return {"moments": moments.tolist(), "targets": targets.tolist(), "weights": weights.tolist()}
