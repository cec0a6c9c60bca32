"""Monitoring of policy training: KL from the reference, repetition and diversity."""

import math
from collections.abc import Iterator

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ...rm.data import text_style as texts
from ..composition.groups import groups
from ..types import Rollout


def watched(rollout: Rollout, total: Float[Tensor, " N"]) -> Iterator[tuple[str, float]]:
    """Yield one step's statistics; the KL needs `logprobs` and `base`, repetition and diversity need `tokens`."""
    if rollout.logprobs is not None and rollout.base is not None:
        divergence = log_ratio(rollout.logprobs, rollout.base, rollout.response)
        yield "watch/kl", divergence.mean().item()
        yield "watch/kl_stderr", standard_error(divergence, rollout.group)
    yield "watch/length", rollout.response.sum(1).double().mean().item()
    yield "watch/unfinished", 1 - rollout.finished.double().mean().item()
    if rollout.tokens is not None:
        yield "watch/repetition", repetition(rollout)
        yield "watch/distinct_1", distinct(rollout, 1)
        yield "watch/distinct_2", distinct(rollout, 2)
    yield "watch/reward_spread", reward_spread(total, rollout.group)


# ---- distance from the reference policy ----


def log_ratio(
    logprobs: Float[Tensor, "N L"], base: Float[Tensor, "N L"], response: Bool[Tensor, "N L"]
) -> Float[Tensor, " N"]:
    """k1 = Σ_t log π(y_t) - log base(y_t) of every completion, in nats         http://joschu.net/blog/kl-approx.html

    Its mean over samples of π is an unbiased estimate of KL(π | base); it is negative for some completions.
    """
    return torch.where(response, logprobs.double() - base.double(), 0).sum(1)


def standard_error(values: Float[Tensor, " N"], group: Int[Tensor, " N"]) -> float:
    """Return the standard error of the mean of values that are not missing, clustered by the G prompts; NaN for one.

    s² = G/(G-1) Σ_g (Σ_{i∈g} (x_i - mean))² / N²                   Liang & Zeger 1986, doi:10.1093/biomet/73.1.13
    """
    values, group = values[~values.isnan()].double(), group[~values.isnan()]
    group_index = torch.unique(group, return_inverse=True)[1]
    number = len(group_index.unique())
    if number < 2:
        return math.nan
    totals = values.new_zeros(number).index_add(0, group_index, values - values.mean())
    return (totals.norm() * math.sqrt(number / (number - 1)) / len(values)).item()


def reward_spread(total: Float[Tensor, " N"], group: Int[Tensor, " N"]) -> float:
    """Return the std (n - 1) of rewards within a group, averaged over groups with two or more; NaN without any."""
    statistics = groups(total, group)
    share = torch.where(statistics.valid, 1 / statistics.number, 0)  # the rows of a group have total weight 1
    return ((share * statistics.variance.sqrt()).sum() / share.sum()).item()


# ---- text statistics ----


def repetition(rollout: Rollout, n: int = 3) -> float:
    """Return the mean `rm.data.text_style.repetition` of completions of n tokens or more; NaN without any."""
    shares = [texts.repetition(completion, n) for completion in _completions(rollout)]
    return torch.tensor(shares, dtype=torch.float64).nanmean().item()


def distinct(rollout: Rollout, n: int) -> float:
    """Return `rm.data.text_style.distinct` over all completions."""
    return texts.distinct(_completions(rollout), n)


def _completions(rollout: Rollout) -> list[list[int]]:
    if rollout.tokens is None:
        raise ValueError("repetition and variety need the rollout's tokens")
    rows = zip(rollout.tokens.cpu(), rollout.response.cpu(), strict=True)
    return [tokens[mask].tolist() for tokens, mask in rows]
