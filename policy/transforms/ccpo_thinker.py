"""CCPO, thinker phase: reward gain due to a thought, normalised by the gains of the previous steps."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from ..types import AdvantageEstimator, Rewards, Rollout, State, Transform

DECAY, LEAST, EPSILON = 0.99, 10, 1e-6  # defaults of the released code, like α = 1 and η = 1


def ccpo_thinker(
    *, joint: str, solo: str, alpha: float = 1.0, decay: float = DECAY, least: int = LEAST, epsilon: float = EPSILON
) -> Transform:
    """r = tanh(α (Δ - μ_Δ) / (σ_Δ + ε)),  Δ = R_joint - R_solo                    CCPO 2026, arXiv:2603.21563, v1

    R_joint and R_solo are the rewards `joint` (with the thought) and `solo` (without it). r replaces `joint`; `solo`
    needs a --weight of 0. μ_Δ and σ_Δ are moving mean and standard deviation over the previous steps
    (`update_moments`). For the first `least` pairs of rewards r is Δ, as in the released code.
    """
    check_settings("ccpo_thinker", decay, least)

    def change(state: State, rewards: Rewards, rollout: Rollout) -> tuple[State, Rewards]:
        delta = rewards[joint] - rewards[solo]
        enough = state["seen"] >= least
        shaped = torch.tanh(alpha * z_score(state["delta"], delta, epsilon)) if enough else delta
        return update_moments(state, {"delta": delta}, decay), rewards.replaced(joint, shaped)

    def check(estimator: AdvantageEstimator, trained: Sequence[str]) -> None:
        if solo in trained:
            raise ValueError(f"ccpo_thinker: '{solo}' is already part of the difference; set --weight {solo}=0")

    return Transform("reward", change, start={"seen": 0}, check=check)


# ---- running statistics ----


def update_moments(state: State, columns: dict[str, Float[Tensor, " N"]], decay: float) -> State:
    """μ <- d μ + (1 - d) mean(x),  v <- d v + (1 - d) var(x) of each column x

    d = `decay`. mean and var are over the rows of this step where no column is missing; without such a row the state
    does not change. μ and v start as the first step's mean and variance. var uses N and the step's mean, as in the
    released code.
    """
    complete = ~torch.stack([*columns.values()]).isnan().any(0)
    if not complete.any():
        return state
    after: dict[str, object] = {"seen": state["seen"] + int(complete.sum())}
    for name, values in columns.items():
        x = values[complete].double()
        now = [x.mean().item(), x.var(correction=0).item()]
        after[name] = (
            [decay * a + (1 - decay) * b for a, b in zip(state[name], now, strict=True)] if state["seen"] else now
        )
    return after


def z_score(moments: Sequence[float], x: Float[Tensor, " N"], epsilon: float) -> Float[Tensor, " N"]:
    """Compute (x - μ) / (σ + ε) for the moments (μ, v), where σ = √v."""
    return (x - moments[0]) / (deviation(moments, epsilon) + epsilon)


def deviation(moments: Sequence[float], epsilon: float) -> float:
    """Return the standard deviation σ = √v of the moments (μ, v), or 1 if v <= `epsilon`.

    >>> deviation((0.3, 0.25), 1e-6), deviation((0.3, 0.0), 1e-6)
    (0.5, 1.0)
    """
    return moments[1] ** 0.5 if moments[1] > epsilon else 1.0


def check_settings(name: str, decay: float, least: int) -> None:
    """Raise `ValueError` if `decay` or `least` is out of range."""
    if not 0 <= decay < 1 or least < 1:
        raise ValueError(f"{name}: decay must be in [0, 1) and `least` 1 or more, got {decay} and {least}")
