"""RLFR: a penalty on tokens whose hidden states deviate from the flow to the states of right completions."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ..types import Rollout, State, Transform


def rlfr(
    *, eta: float = 0.01, time: float = 0.8, threshold: float = 0.6, most: int = 15, decay: float = 0.9
) -> Transform:
    """A'_t = A_t - η s_t, where s_t is the scaled velocity deviation of the hidden state h_t    RLFR 2025, 2510.10201

    d_t = E_ε mean ||v(x) - (h_t - ε)||², x = τ h_t + (1 - τ) ε, ε ~ N(0, I), with the velocity field v of the flow from
    noise to the states of right completions and τ = `time`. s_t is d_t scaled to [0, 1] within the completion
    (`deviation_scores`); η, τ, `threshold` and `most` are those of the released code. Ours: v is the exact field of a
    normal distribution with the moving means and variances (`decay`) of the states' dimensions before this step, where
    the paper trains a network on several layers; s_t is subtracted from the advantage in place of the token reward. A
    completion is right if its total reward is above 0.
    """
    if not 0 < time < 1 or not 0 <= decay < 1 or most < 1:
        raise ValueError(f"rlfr: needs time in (0, 1), decay in [0, 1) and most >= 1, got {time}, {decay} and {most}")

    def change(state: State, advantages: Float[Tensor, "N ..."], rollout: Rollout) -> tuple[State, Tensor]:
        (states, total), response = rollout.require("rlfr", "states", "total"), rollout.response
        spread = rollout.by_token(advantages)
        right = states[response & (total > 0)[:, None]].double()
        after = dict(state)
        if len(right):
            statistics = {"mean": right.mean(0), "variance": right.var(0, correction=0)}
            old = {name: right.new_tensor(state.get(name, value.tolist())) for name, value in statistics.items()}
            after = {name: (decay * old[name] + (1 - decay) * value).tolist() for name, value in statistics.items()}
        if not state:
            return after, spread
        mean, variance = (states.new_tensor(state[name], dtype=torch.float64) for name in ("mean", "variance"))
        deviation = expected_deviation(states.double() - mean, variance, time)
        scores = deviation_scores(deviation, response & ~total.isnan()[:, None], threshold, most)
        return after, (spread - eta * scores).to(advantages.dtype)

    return Transform("advantage", change, stage=3, reads=("states",))


def expected_deviation(z: Float[Tensor, "N L D"], variance: Float[Tensor, " D"], time: float) -> Float[Tensor, "N L"]:
    """d = mean over dimensions of z² (1 - k τ)² + (k (1 - τ) + 1)²,  k = (τ σ² - (1 - τ)) / (τ² σ² + (1 - τ)²)

    For h ~ N(m, σ²) the field is v(x) = m + k (x - τ m). z = h - m, σ² = `variance` and τ = `time`.

    >>> expected_deviation(torch.tensor([[[1.0], [3.0]]]), torch.tensor([1.0]), 0.5).tolist()  # k = 0
    [[2.0, 10.0]]
    """
    k = (time * variance - (1 - time)) / (time**2 * variance + (1 - time) ** 2)
    return (z**2 * (1 - k * time) ** 2 + (k * (1 - time) + 1) ** 2).mean(-1)


def deviation_scores(
    deviation: Float[Tensor, "N L"], rows: Bool[Tensor, "N L"], threshold: float, most: int
) -> Float[Tensor, "N L"]:
    """Return (d - min) / (max - min) over the tokens `rows` of each completion; scores <= `threshold` become 0.

    Only the `most` highest scores of a completion are kept.
    """
    low = deviation.masked_fill(~rows, torch.inf).amin(1, keepdim=True)
    high = deviation.masked_fill(~rows, -torch.inf).amax(1, keepdim=True)
    scores = torch.where(rows & (high > low), (deviation - low) / (high - low), 0)
    scores = torch.where(scores > threshold, scores, 0)
    top = scores.topk(min(most, scores.shape[1]), dim=1)
    return torch.zeros_like(scores).scatter(1, top.indices, top.values)
