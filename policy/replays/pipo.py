"""PIPO: replay of the previous step's completions, with advantages scaled by the improvement since that step."""

from collections.abc import Sequence
from statistics import fmean, stdev
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ..types import Past, Replay, State

FLAT = 1e-8  # standard deviation of mean rewards that counts as none


def pipo(*, window: int = 8, damping: float = 0.1, bound: float = 5.0) -> Replay:
    """A'_i = C_i φ(ξ_t) of the previous step's completions                   PIPO 2026, arXiv:2604.00860

    ξ is the improvement of the mean reward (`progress`), φ scales it (`rectify`), and C are normalised advantages
    (`attribution`). `window` and `damping` λ are the paper's; |ξ| <= `bound` is the code's. Nothing is replayed in
    the first `window` steps. As in the paper, but not in its code, μ and σ do not include the current step.

    The state is {"means": mean rewards of the last steps, "gain": φ(ξ)}. Requires `--num_iterations 2` or more.
    """
    if window < 2 or not 0 <= damping <= 1 or bound <= 0:
        raise ValueError(
            f"pipo: window must be at least 2, damping in [0, 1] and bound above 0, got {window}, {damping} and {bound}"
        )

    def replay(state: State, total: Float[Tensor, " N"], past: Past) -> tuple[State, Float[Tensor, "N L"] | None]:
        after, gain = progress(state, total.nanmean().item(), window=window, damping=damping, bound=bound)
        if gain == 0:
            return after, None
        return after, gain * attribution(past.advantage, past.rollout.response, past.rollout.group)

    return replay


def progress(state: State, mean: float, *, window: int, damping: float, bound: float) -> tuple[dict[str, Any], float]:
    """Return the next state and φ(ξ) of a step's mean reward μ_t, with ξ = (μ_t - μ) / σ.

    μ and σ (N - 1) are over the mean rewards of the previous `window` steps. A σ below 1e-8 is replaced by 1. φ(ξ) is 0
    in the first `window` steps, and for a NaN mean, which is not added to the state.
    """
    means: list[float] = list(state.get("means", ()))
    if mean != mean:
        return {"means": means, "gain": 0.0}, 0.0
    gain = 0.0
    if len(means) == window:
        gain = rectify(z_score(mean, means), damping, bound)
    return {"means": [*means, mean][-window:], "gain": gain}, gain


def z_score(mean: float, before: Sequence[float]) -> float:
    """Return ξ: the z-score of a mean reward relative to the mean rewards of previous steps.

    >>> z_score(4.0, [1.0, 3.0, 2.0])
    2.0
    """
    spread = stdev(before)
    return (mean - fmean(before)) / (spread if spread > FLAT else 1.0)


def rectify(standing: float, damping: float, bound: float) -> float:
    """Compute φ(ξ) = ξ for ξ >= 0, else λ ξ, with λ = `damping` and ξ clamped to ±bound.

    >>> rectify(-2.0, 0.5, 5.0), rectify(9.0, 0.5, 5.0)
    (-1.0, 5.0)
    """
    clamped = max(-bound, min(bound, standing))
    return clamped if clamped >= 0 else damping * clamped


def attribution(
    advantage: Float[Tensor, "N L"], response: Bool[Tensor, "N L"], group: Int[Tensor, " N"]
) -> Float[Tensor, "N L"]:
    """Compute C_it = G A_it / Σ_j mean_t |A_jt|, where j are the G completions of the group and A their advantages.

    The mean |C| is 1 in each group, or 0 if all advantages are 0.
    """
    token_advantages = torch.where(response, advantage, 0)
    size = token_advantages.abs().sum(1) / response.sum(1).clamp_min(1)
    same = (group[:, None] == group).to(size.dtype)
    total = same @ size
    number = same.sum(1)
    return torch.where((total > 0)[:, None], token_advantages * (number / total.clamp_min(1e-12))[:, None], 0)
