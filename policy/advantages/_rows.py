"""Completions as rows [N, L] with a mask of the tokens that the policy generated."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


def bounds_of_rows(rows: Float[Tensor, "N L"]) -> Int[Tensor, " _"]:
    """Return the cumulative bounds of the N rows as packed sequences in the flattened tensor."""
    N, L = rows.shape
    return torch.arange(0, N * L + 1, L, device=rows.device) if L else torch.zeros(N + 1, dtype=torch.long)


def last_token(response: Bool[Tensor, "N L"]) -> Bool[Tensor, "N L"]:
    """Return a mask of the last token that the policy generated in each completion. All False for empty completions."""
    remaining = response.flip(1).cumsum(1).flip(1)  # number of own tokens from this position on
    return response & (remaining == 1)


def end_column(response: Bool[Tensor, "N L"]) -> Int[Tensor, " N"]:
    """Return the column after the last token that the policy generated. 0 for an empty completion."""
    columns = torch.arange(1, response.shape[1] + 1, device=response.device)
    return (response * columns).amax(1)


def own_first(response: Bool[Tensor, "N L"]) -> Int[Tensor, "N L"]:
    """Return a column order that puts the policy's tokens before tokens from tools and padding, in each row."""
    return (~response).byte().sort(dim=1, stable=True).indices


def at_last_token(rewards: Float[Tensor, "N ..."], response: Bool[Tensor, "N L"]) -> Float[Tensor, "N L"]:
    """Return completion rewards [N] as [N, L], at the last token of each completion. Return [N, L] unchanged."""
    if rewards.dim() == 2:
        return rewards
    return torch.where(last_token(response), rewards[:, None], 0)
