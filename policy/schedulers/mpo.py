"""MPO (mixed preference optimization): training on the prompts whose completions differ little, or much, in reward."""

import torch
from jaxtyping import Float
from torch import Tensor

from ..types import Rollout, Scheduler, State


def mpo(*, gap: float, side: str) -> Scheduler:
    """w = 1 for the prompts with max r - min r < γ (`side=small`) or >= γ (`side=large`), else 0  MPO: arXiv:2403.19443

    r are the rewards of the prompt's completions and γ = `gap`, which the paper does not fix. The paper trains DPO on
    the pairs with a large gap first (`side=large` with `--loss rpo(...)`), then PPO on the prompts with a small gap,
    with the DPO policy as the reference (`side=small`, `--reference`). Weights have mean 1 over the completions with a
    reward, or are all 0 if no prompt fulfils the condition.
    """
    if gap <= 0 or side not in ("small", "large"):
        raise ValueError(f"mpo: gap must be above 0 and side 'small' or 'large', got {gap} and {side!r}")

    def schedule(state: State, scores: Float[Tensor, " N"], rollout: Rollout) -> tuple[State, Float[Tensor, " N"]]:
        present = ~scores.isnan()
        highest, lowest = (extreme(sign * scores, rollout) for sign in (1, -1))
        chosen = present & ((highest + lowest >= gap) == (side == "large"))
        return state, chosen.to(scores.dtype) * present.sum() / chosen.sum().clamp_min(1)

    return schedule


def extreme(scores: Float[Tensor, " N"], rollout: Rollout) -> Float[Tensor, " N"]:
    """Return the highest score of each row's group over the rows with a score; -inf if there is none."""
    group = torch.unique(rollout.group, return_inverse=True)[1]
    least = torch.full_like(scores, -torch.inf)
    return least.scatter_reduce(0, group, scores.nan_to_num(-torch.inf), "amax")[group]
