"""HACPO: GSPO on the policy's completions, and a weight clipped on one side for completions of partner models."""

import torch
from jaxtyping import Float
from torch import Tensor

from ._kinds import FARTHEST, CompletionLossInputs, PerCompletionLoss, n_own_completions


def hacpo(
    *,
    delta: float,
    delta_step: float = 0.025,
    alpha: float = 1.0,
    low: float = 3e-4,
    high: float = 4e-4,
    agents: int = 1,
) -> PerCompletionLoss:
    """With s = (π(y) / π_old(y))^{1/|y|}, where π_old is the model that generated y        HACPO: arXiv:2603.02604

    by the policy    L = -min(s A, clip(s, 1 - low, 1 + high) A), which is `gspo`
    by partners      L = -s sg[s]^α A where f <= s <= 1, -A where s > 1, 0 where s < f,   f = 1 - δ + m δ_step <= 1

    sg stops the gradient and A is the advantage. m is the number of optimizer steps since the completions were
    generated. A partner's completion has a gradient only if f <= s <= 1, for A of either sign. δ in [0, 1] has no
    default: it is .8 (.9 for one pair) in the paper's table and .2 in its text; δ_step is .025 or .01, α 1 or 3. As in
    the authors' code, f bounds s, not s^α. The first completions of a group are the policy's
    (`n_own_completions`). A completion with a NaN advantage has no loss.
    """
    if not 0 <= delta <= 1 or delta_step < 0 or alpha < 0 or agents < 1:
        raise ValueError(
            "hacpo: delta must be in [0, 1], delta_step and alpha at least 0 and agents at least 1, got "
            f"{delta}, {delta_step}, {alpha} and {agents}"
        )

    def loss(completions: CompletionLossInputs) -> Float[Tensor, " N"]:
        valid = ~completions.advantage.isnan()
        drift = (completions.logprob - completions.old.detach()) / completions.length.clamp_min(1)
        drift = torch.where(valid, drift, 0).clamp(-FARTHEST, FARTHEST)
        A = completions.advantage.detach().nan_to_num(0)
        s = drift.exp()
        surrogate = torch.minimum(s * A, s.clamp(1 - low, 1 + high) * A)
        least = min(1.0, 1 - delta + completions.updates * delta_step)
        bounded = s.clamp_max(1.0)
        foreign = torch.where(s >= least, bounded * bounded.detach() ** alpha * A, 0)
        return -torch.where(completions.index < n_own_completions(completions.size, agents), surrogate, foreign)

    return PerCompletionLoss(loss)
