"""Monitoring of policy training: KL from the reference, repetition and diversity, and estimates of best-of-n."""

import math
from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ...rm.data import text_diversity as texts
from ..composition.groups import groups
from ..types import Rollout


def watched(rollout: Rollout, total: Float[Tensor, " N"]) -> Iterator[tuple[str, float]]:
    """Yield one step's statistics; the KL needs `logprobs` and `base`, repetition and diversity need `tokens`."""
    if rollout.logprobs is not None and rollout.base is not None:
        divergence = sequence_kl(rollout)
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


def sequence_kl(rollout: Rollout) -> Float[Tensor, " N"]:
    """Return `log_ratio` of the rollout's completions under the policy and its base."""
    if rollout.logprobs is None or rollout.base is None:
        raise ValueError("the KL needs the rollout's log-probabilities under the policy and under its base")
    return log_ratio(rollout.logprobs, rollout.base, rollout.response)


def log_ratio(
    logprobs: Float[Tensor, "N L"], base: Float[Tensor, "N L"], response: Bool[Tensor, "N L"]
) -> Float[Tensor, " N"]:
    """k1 = Σ_t log π(y_t) - log base(y_t) of every completion, in nats; its mean over samples of π estimates KL(π |
    base).

    Unbiased, and negative for some completions                         http://joschu.net/blog/kl-approx.html
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
    """Return the std (n - 1) of rewards within a group, averaged over groups with two or more; NaN without any.

    Without spread there is no learning signal; NaN rewards have no effect.
    """
    statistics = groups(total, group)
    share = torch.where(statistics.valid, 1 / statistics.number, 0)  # the rows of a group have total weight 1
    return ((share * statistics.variance.sqrt()).sum() / share.sum()).item()


# ---- text statistics ----


def repetition(rollout: Rollout, n: int = 3) -> float:
    """Return the mean `rm.data.text_diversity.repetition` of completions of n tokens or more; NaN without any."""
    shares = [texts.repetition(completion, n) for completion in _completions(rollout)]
    return torch.tensor(shares, dtype=torch.float64).nanmean().item()


def distinct(rollout: Rollout, n: int) -> float:
    """Return `rm.data.text_diversity.distinct` over all completions."""
    return texts.distinct(_completions(rollout), n)


def _completions(rollout: Rollout) -> list[list[int]]:
    if rollout.tokens is None:
        raise ValueError("repetition and variety need the rollout's tokens")
    rows = zip(rollout.tokens.cpu(), rollout.response.cpu(), strict=True)
    return [tokens[mask].tolist() for tokens, mask in rows]


# ---- best-of-n ----


def best_of_n(rewards: Float[Tensor, "P M"], values: Float[Tensor, "P M"], ns: Sequence[int]) -> Float[Tensor, " S"]:
    """Estimate the mean value of the completion with the best reward among n of a prompt's M completions, for every n.

    E = 1/P Σ_p Σ_i v_i (C(le_i, n) - C(lt_i, n)) / (eq_i C(M, n)),   le_i, lt_i, eq_i = |{j: r_j <=, <, = r_i}|

    Exact expectation over all draws of n without replacement; ties share the place of the best. Without ties it is the
    estimator of Nakano et al. 2021, arXiv:2112.09332, appendix I.
    """
    total = rewards.shape[1]
    if not (rewards.isfinite() & values.isfinite()).all():
        raise ValueError(
            "best-of-n needs a finite reward and value of every completion; leave prompts without them out"
        )
    if not all(1 <= n <= total for n in ns):
        raise ValueError(f"best-of-n of {total} completions to a prompt needs 1 <= n <= {total}, got {list(ns)}")
    ordered = rewards.sort(1).values
    below, up_to = (torch.searchsorted(ordered, rewards, right=right) for right in (False, True))
    chances = [_all_among(total, n).to(rewards.device) for n in ns]
    return torch.stack(
        [(values * (chance[up_to] - chance[below]) / (up_to - below)).sum(1).mean() for chance in chances]
    )


def _all_among(total: int, n: int) -> Float[Tensor, " K"]:
    """C(k, n) / C(M, n) for k = 0 ... M: the probability that n draws all fall into a given set of k."""
    drawn = torch.arange(n)
    left = (torch.arange(total + 1)[:, None] - drawn).clamp_min(0)
    return (left.double() / (total - drawn)).prod(1)


def best_of_n_kl(n: int) -> float:
    """log n - (n-1)/n, in nats                                     Stiennon et al. 2020, arXiv:2009.01325, appendix G.3

    An upper bound of the KL from the policy to its best-of-n, and a loose one where likely completions repeat
    (Beirami et al. 2024, arXiv:2401.01879).
    """
    if n < 1:
        raise ValueError(f"best-of-n takes the best of 1 completion or more, got {n}")
    return math.log(n) - (n - 1) / n
