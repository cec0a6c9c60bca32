"""Best-of-n: the expected value of the best of n completions, its gain over the mean, and a bound of the KL."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from scipy import stats
from torch import Tensor

LEVEL = 0.95


def expected_best_of_n(
    rewards: Float[Tensor, "P M"], values: Float[Tensor, "P M"], ns: Sequence[int]
) -> Float[Tensor, "P S"]:
    """Estimate the value of the completion with the best reward among n of a prompt's M completions, for every n.

    E_p = Σ_i v_i (C(le_i, n) - C(lt_i, n)) / (eq_i C(M, n)),   le_i, lt_i, eq_i = |{j: r_j <=, <, = r_i}|

    Exact expectation over all subsets of n completions; the values of completions that tie for the best are averaged.
    Without ties it is the estimator of Nakano et al. 2021, arXiv:2112.09332, appendix I. If r = v are verdicts of 0 or
    1, it is pass@n; if they are products of verdicts of answer and reasoning, CoT-Pass@n (arXiv:2506.14245).
    """
    total = rewards.shape[1]
    if not (rewards.isfinite() & values.isfinite()).all():
        raise ValueError(
            "best-of-n needs a finite reward and value of every completion; remove completions that lack either"
        )
    if not all(1 <= n <= total for n in ns):
        raise ValueError(f"best-of-n from {total} completions of a prompt needs 1 <= n <= {total}, got {list(ns)}")
    ordered = rewards.sort(1).values
    below, up_to = (torch.searchsorted(ordered, rewards, right=right) for right in (False, True))
    chances = [_subset_probabilities(total, n).to(rewards.device) for n in ns]
    return torch.stack([(values * (chance[up_to] - chance[below]) / (up_to - below)).sum(1) for chance in chances], 1)


def _subset_probabilities(total: int, n: int) -> Float[Tensor, " K"]:
    """Return C(k, n) / C(M, n) for k = 0 ... M: the probability that n draws all fall into a set of size k."""
    draw = torch.arange(n)
    remaining = (torch.arange(total + 1)[:, None] - draw).clamp_min(0)
    return (remaining.double() / (total - draw)).prod(1)


def best_of_n_kl(n: int) -> float:
    """log n - (n-1)/n, in nats                                     Stiennon et al. 2020, arXiv:2009.01325, appendix G.3

    An upper bound of the KL divergence between best-of-n and the policy. The bound is loose where likely completions
    repeat (Beirami et al. 2024, arXiv:2401.01879).
    """
    if n < 1:
        raise ValueError(f"best-of-n needs n of 1 or more, got {n}")
    return math.log(n) - (n - 1) / n


class Gain(NamedTuple):
    """Expected gain of best-of-n: E[value of the best of n] - E[value], in units of the value, with an interval."""

    n: int
    value: float
    low: float
    """Lower end of Student's 95 % interval over prompts; NaN for a single prompt."""
    high: float
    prompts: int
    """Number of prompts with at least n completions that have a reward and a value."""
    kl_bound: float
    """`best_of_n_kl`, in nats."""


def expected_gains(
    rewards: Float[Tensor, "P M"], values: Float[Tensor, "P M"], ns: Sequence[int] | None = None
) -> list[Gain]:
    """Estimate the gain in value from taking the best of n by reward, for every n (default: 2, 4, 8, ... and M).

    The gain of a prompt is `expected_best_of_n` minus the mean value of its completions. Completions whose reward or
    value is NaN are left out, as is every n for which no prompt has enough completions. Equal completions count as
    often as they were sampled, since the expectation is over the policy.
    """
    most = rewards.shape[1]
    ns = sorted({*(2**power for power in range(1, most.bit_length())), most} - {1}) if ns is None else ns
    rated = rewards.isfinite() & values.isfinite()
    gains: dict[int, list[Tensor]] = {n: [] for n in ns}
    for total in rated.sum(1).unique().tolist():
        alike = rated.sum(1) == total
        usable = [n for n in ns if n <= total]
        if not usable:
            continue
        reward, value = (table[alike][rated[alike]].view(-1, total).double() for table in (rewards, values))
        expected = expected_best_of_n(reward, value, usable)
        for index, n in enumerate(usable):
            gains[n].append(expected[:, index] - value.mean(1))
    return [_gain_with_interval(n, torch.cat(parts).numpy()) for n, parts in gains.items() if parts]


def _gain_with_interval(n: int, gains: Float[np.ndarray, " P"]) -> Gain:
    number, mean = len(gains), float(gains.mean())
    half = math.nan
    if number > 1:
        half = float(stats.t.ppf((1 + LEVEL) / 2, number - 1) * gains.std(ddof=1) / math.sqrt(number))
    return Gain(n, mean, mean - half, mean + half, number, best_of_n_kl(n))
