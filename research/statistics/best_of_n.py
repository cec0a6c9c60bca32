"""Best-of-n: the expected value of the best of n completions, and the bound of its KL."""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor


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
