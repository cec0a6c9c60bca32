"""ResRL: smaller negative advantages at tokens whose hidden states resemble those of good completions."""

import torch
from jaxtyping import Float
from torch import Tensor

from ..types import Rollout, State, Transform

FEWEST = 4  # minimum number of good tokens to fit principal components to, as in the released code
NOTHING = 1e-6  # rounding threshold of singular values and residuals, for states with variance 1


def resrl(
    *, rank: int = 64, low: float = 0.2, high: float = 0.8, floor: float = 0.1, positive: float = 0.1, most: int = 4096
) -> Transform:
    """A'_t = A_t · `positive` for A > 0, A_t w_t for A < 0                ResRL 2026, arXiv:2605.00380

    w_t depends on the residual ‖h_t - P h_t‖² / D of the policy's hidden state h_t [D] (`rollout.states`, normalised to
    mean 0 and variance 1; the paper uses the layer before the last). P projects on the first `rank` principal
    components of the states of good completions (A > 0) of the same prompt, from at most `most` evenly spaced states.
    w_t increases from `floor` to 1 between the `low` and `high` quantiles of the residuals. The default settings are
    those of the released code. w is 1 if a prompt has fewer than 4 good tokens, or all residuals are equal.
    """
    if rank < 1 or not 0 <= low < high <= 1 or not 0 <= floor <= 1 or positive < 0 or most < 1:
        raise ValueError(
            "resrl: needs rank >= 1, most >= 1, 0 <= low < high <= 1, floor in [0, 1] and positive >= 0, "
            f"got {rank}, {most}, {low}, {high}, {floor} and {positive}"
        )

    def change(state: State, advantages: Float[Tensor, "N ..."], rollout: Rollout) -> tuple[State, Tensor]:
        (hidden,), advantages = rollout.require("resrl", "states"), rollout.by_token(advantages)
        good, bad = rollout.response & (advantages > 0), rollout.response & (advantages < 0)
        advantage = torch.where(good, positive * advantages, advantages)
        for number in rollout.group.unique():
            rows = (rollout.group == number)[:, None]
            near, far = hidden[good & rows], bad & rows
            if len(near) < FEWEST or not far.any():
                continue
            near = near[torch.linspace(0, len(near) - 1, min(most, len(near)), device=near.device).long()]
            weight = residual_weight(hidden[far].float(), near.float(), rank, low, high, floor)
            advantage[far] = advantage[far] * weight.to(advantage.dtype)
        return state, advantage

    return Transform("advantage", change, stage=4, reads=("states",))


def residual_weight(
    bad: Float[Tensor, "M D"], good: Float[Tensor, "K D"], rank: int, low: float, high: float, floor: float
) -> Float[Tensor, " M"]:
    """Return the weights w in [floor, 1] of M hidden states of bad completions, given K states of good completions."""
    bad, good = (torch.nn.functional.layer_norm(states, states.shape[1:]) for states in (bad, good))
    centre = good.mean(0)
    decomposition = torch.linalg.svd(good - centre, full_matrices=False)
    basis = decomposition.Vh[:rank][decomposition.S[:rank] > NOTHING]
    gap = bad - centre
    residual = (gap - gap @ basis.T @ basis).square().mean(1)
    first, last = residual.quantile(low), residual.quantile(high)
    if last - first <= NOTHING:
        return torch.ones_like(residual)
    return floor + (1 - floor) * ((residual - first) / (last - first)).clamp(0, 1)
