"""Groups of completions of one prompt, and completions as rows [N, L] with a mask of the policy's tokens."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ...kernels.discounted_scan import discounted_scan
from ...rm.errors import UsageError


class Groups(NamedTuple):
    """Statistics of each row's group over the rows with a reward, in float64."""

    valid: Bool[Tensor, " N"]
    """Whether the row and at least one other row of its group have a reward."""
    number: Float[Tensor, " N"]
    mean: Float[Tensor, " N"]
    variance: Float[Tensor, " N"]
    """Variance Σ (r - mean)² / (number - 1) of the group's rewards. Exactly 0 if all rewards are equal."""

    def standardised(self, rewards: Float[Tensor, " N"], epsilon: float) -> Float[Tensor, " N"]:
        """Compute (r - mean) / (std + ε) within groups. Exactly 0 in groups of equal rewards, also for ε = 0."""
        return torch.where(
            self.variance > 0, (rewards - self.mean) / (self.variance.sqrt() + epsilon), rewards - self.mean
        )


def groups(rewards: Float[Tensor, " N"], group: Int[Tensor, " N"]) -> Groups:
    """Compute group statistics. NaN rewards are left out. Raise `ValueError` for infinite rewards."""
    check_finite(rewards)
    group_index = torch.unique(group, return_inverse=True)[1]
    valid, r = ~rewards.isnan(), rewards.double().nan_to_num(0)

    def total(values: Tensor) -> Tensor:
        return torch.zeros(len(rewards), dtype=torch.float64, device=r.device).index_add(0, group_index, values)[
            group_index
        ]

    number = total(valid.double())
    mean = total(r * valid) / number.clamp_min(1)
    ends = [torch.zeros_like(r).scatter_reduce(0, group_index[valid], r[valid], how, include_self=False)[group_index]
            for how in ("amin", "amax")]  # fmt: skip
    mean = torch.where(ends[0] == ends[1], ends[0], mean)  # no rounding error if all rewards are equal
    variance = total(torch.where(valid, (r - mean).square(), 0)) / (number - 1).clamp_min(1)
    return Groups(valid & (number > 1), number, mean, variance)


def check_finite(rewards: Tensor) -> None:
    """Raise a `ValueError` that names the first infinite reward, if there is one; NaN is a missing reward."""
    if rewards.isinf().any():
        location = tuple(rewards.isinf().nonzero()[0].tolist())
        raise ValueError(
            f"the reward at {location} is {rewards[location].item()}; a missing reward must be NaN, not infinite"
        )


def check_verdicts(rewards: Tensor, formula: str) -> None:
    """Raise `UsageError` if a reward is neither 0 nor 1 nor NaN."""
    odd = rewards[~rewards.isnan() & (rewards != 0) & (rewards != 1)]
    if len(odd):
        raise UsageError(
            f"{formula}: rewards must be verdicts of 0 or 1, got {odd[0].item():g}; leave the reward weights at 1, and "
            "add a KL penalty to the loss, not to the rewards"
        )


def as_float(rewards: Tensor) -> Tensor:
    """Return integer or boolean rewards as float64, so that derived values are not truncated."""
    return rewards if rewards.is_floating_point() else rewards.double()


def masked_advantages(advantages: Float[Tensor, " N"], valid: Bool[Tensor, " N"], like: Tensor) -> Float[Tensor, " N"]:
    """Return the advantages, with 0 for invalid rows, in the dtype of `like` (float64 for integer rewards)."""
    return torch.where(valid, advantages, 0).to(as_float(like).dtype)


def standardise(x: Float[Tensor, " M"], epsilon: float) -> Float[Tensor, " M"]:
    """Compute (x - mean) / (std + ε) with Bessel's correction. 0 if all values are equal or there is only one value."""
    if len(x) < 2 or bool(x.min() == x.max()):
        return torch.zeros_like(x)
    return (x - x.mean()) / (x.std() + epsilon)


def bounds_of_rows(rows: Float[Tensor, "N L"]) -> Int[Tensor, " _"]:
    """Return the bounds [N + 1] of N rows, which are packed sequences in the flattened tensor."""
    N, L = rows.shape
    return torch.arange(0, N * L + 1, L, device=rows.device) if L else torch.zeros(N + 1, dtype=torch.long)


def last_token(response: Bool[Tensor, "N L"]) -> Bool[Tensor, "N L"]:
    """Return a mask of the last token that the policy generated in each completion. All False for empty completions."""
    remaining = response.flip(1).cumsum(1).flip(1)  # number of the policy's tokens from this position on
    return response & (remaining == 1)


def end_column(response: Bool[Tensor, "N L"]) -> Int[Tensor, " N"]:
    """Return the column after the last token that the policy generated. 0 for an empty completion."""
    columns = torch.arange(1, response.shape[1] + 1, device=response.device)
    return (response * columns).amax(1)


def policy_tokens_first(response: Bool[Tensor, "N L"]) -> Int[Tensor, "N L"]:
    """Return a column order that puts the policy's tokens before tokens from tools and padding, in each row."""
    return (~response).byte().sort(dim=1, stable=True).indices


def at_last_token(rewards: Float[Tensor, "N ..."], response: Bool[Tensor, "N L"]) -> Float[Tensor, "N L"]:
    """Return completion rewards [N] as [N, L], at the last token of each completion. Return [N, L] unchanged."""
    if rewards.dim() == 2:
        return rewards
    return torch.where(last_token(response), rewards[:, None], 0)


def discounted_returns(
    rewards: Float[Tensor, "N L"], response: Bool[Tensor, "N L"], gamma: float
) -> Float[Tensor, "N L"]:
    """Compute R_t = Σ_{s>=t} γ^{s-t} r_s over the tokens that the policy generated; 0 elsewhere.

    s - t is the number of these tokens from t to s: tokens from tools between them are no steps.
    """
    order = policy_tokens_first(response)
    packed = torch.where(response, rewards, 0).gather(1, order)
    returns = discounted_scan(packed.flatten(), bounds_of_rows(packed), discount=gamma).view_as(packed)
    return torch.where(response, torch.zeros_like(returns).scatter(1, order, returns), 0)
