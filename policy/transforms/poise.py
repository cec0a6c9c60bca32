"""POISE: a baseline from a linear probe on statistics of the group's other completions."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ..advantages._groups import groups, masked_advantages
from ..types import Rollout, State, Transform


def poise(*, ridge: float = 1.0, decay: float = 1.0, states: int = 0, seed: int = 0) -> Transform:
    """A_i = r_i - mean_{j≠i} g(z_j),  g(z) = wᵀz,  w = (Σ z zᵀ + λ I)⁻¹ Σ z r_others           POISE: arXiv:2605.07579

    z_j are features of completion j: 1, the logarithm of its length, mean and standard deviation of its tokens'
    surprisal -log π (nats), and `states` projections of the policy's hidden states (`projected_states`). The target
    r_others of the linear probe g is the mean reward of the other completions of the group. The baseline of completion
    i reads the features of the others and a probe of previous steps, so that it does not depend on r_i. The sums are
    over the previous steps, discounted by `decay` in (0, 1] per step. λ = `ridge` > 0 does not shrink the constant.
    In the first step the baseline is the mean of the others, as in `rloo`. The result replaces the estimator's
    advantages. Requires `rollout.total`, `rollout.logprobs` and, for `states` > 0, `rollout.states`.
    """
    if ridge <= 0 or not 0 < decay <= 1:
        raise ValueError(f"poise: ridge must be above 0 and decay in (0, 1], got {ridge} and {decay}")
    if states < 0:
        raise ValueError(f"poise: states must be a number of columns >= 0, got {states}")

    def change(state: State, advantages: Float[Tensor, "N ..."], rollout: Rollout) -> tuple[State, Tensor]:
        (total,) = rollout.require("poise", "total")
        z = completion_features(rollout)
        z = torch.cat([z, projected_states(rollout, states, seed)], 1) if states else z
        valid = groups(total, rollout.group).valid
        others = expected = mean_of_others(total.double(), rollout)
        if state:
            predicted = z @ fit(state, ridge).to(z.device)
            expected = mean_of_others(torch.where(total.isnan(), torch.nan, predicted), rollout)
        after = update_sums(state, z[valid], others[valid], decay) if valid.any() else state
        return after, masked_advantages(total - expected, valid, advantages)

    return Transform("advantage", change, stage=1, reads=("logprobs", "states") if states else ("logprobs",))


def completion_features(rollout: Rollout) -> Float[Tensor, "N D"]:
    """Return the features z [N, D] of each completion, in float64."""
    (logprobs,), tokens = rollout.require("poise", "logprobs"), rollout.response.sum(1).double()
    surprisal = torch.where(rollout.response, -logprobs, 0).double()
    mean = surprisal.sum(1) / tokens.clamp_min(1)
    gap = torch.where(rollout.response, surprisal - mean[:, None], 0)
    columns = [torch.ones_like(tokens), tokens.log1p(), mean, (gap.square().sum(1) / tokens.clamp_min(1)).sqrt()]
    return torch.stack(columns, 1)


def projected_states(rollout: Rollout, number: int, seed: int) -> Float[Tensor, "N K"]:
    """Compute random projections P h of each completion's mean hidden state h [D], scaled to mean square 1.

    P [K, D] is normal with variance 1/D, drawn once from `seed`. Ours: the paper uses principal components. A random
    projection also preserves distances (Johnson and Lindenstrauss 1984) and is the same in each step, as the sums over
    steps require.
    """
    (states,), tokens = rollout.require("poise", "states"), rollout.response.sum(1).clamp_min(1)
    mean = torch.where(rollout.response[..., None], states, 0).double().sum(1) / tokens[:, None]
    mean = mean / mean.square().mean(1, keepdim=True).sqrt().clamp_min(1e-12)
    size = mean.shape[1]
    projection = torch.randn(size, number, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return mean @ projection.to(mean.device) / size**0.5


def mean_of_others(values: Float[Tensor, " N"], rollout: Rollout) -> Float[Tensor, " N"]:
    """Return the mean of the other values in the group that are not NaN. 0 if there are no others."""
    statistics = groups(values, rollout.group)
    mean = (statistics.number * statistics.mean - values) / (statistics.number - 1).clamp_min(1)
    return torch.where(statistics.valid, mean, 0)


def fit(state: State, ridge: float) -> Float[Tensor, " D"]:
    """Return the probe's weights w from the sums in the state."""
    moments = torch.tensor(state["moments"], dtype=torch.float64)
    penalty = torch.full((len(moments),), ridge, dtype=torch.float64)
    penalty[0] = 1e-9  # for the constant: only to make the matrix regular after a single completion
    return torch.linalg.solve(moments + penalty.diag(), torch.tensor(state["answered"], dtype=torch.float64))


def update_sums(state: State, z: Float[Tensor, "M D"], r: Float[Tensor, " M"], decay: float) -> dict[str, Any]:
    """Return the discounted sums Σ z zᵀ and Σ z r after adding the M completions of one step."""
    moments, answered = z.T @ z, z.T @ r
    if state:
        moments = moments + decay * z.new_tensor(state["moments"])
        answered = answered + decay * z.new_tensor(state["answered"])
    return {"moments": moments.tolist(), "answered": answered.tolist()}
