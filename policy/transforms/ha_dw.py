"""HA-DW: advantages reweighted by the prompt's difficulty relative to the policy's running accuracy."""

import torch
from jaxtyping import Float
from torch import Tensor

from ...rm.errors import UsageError
from ..advantages._groups import groups
from ..types import Rollout, State, Transform


def ha_dw(*, lam: float = 1.0, eta: float = 0.1, window: int = 50) -> Transform:
    """A' = λ exp(-sgn(A) d) A,  d = p̂ - C;   C <- (1 - η σ) C + η σ p̄       HA-DW: Yang et al. 2026, arXiv:2601.08521

    Rewards are in [0, 1] (`rollout.total`): p̂ is the mean of the completion's group, p̄ the mean of the step. C is the
    running accuracy of the policy, and σ the standard deviation (N - 1) of the last `window` values of C. λ = `lam` is
    1.0 or 1.3 in others' runs; η = `eta`. Ours: C is the value before the current step, initially p̄ of the first step.
    With fewer than two values σ is 1, since C would otherwise never change.
    """
    if lam <= 0 or not 0 <= eta <= 1 or window < 2:
        raise ValueError(
            f"ha_dw: lam must be above 0, eta in [0, 1] and window at least 2, got {lam}, {eta} and {window}"
        )

    def change(state: State, advantages: Float[Tensor, "N ..."], rollout: Rollout) -> tuple[State, Tensor]:
        (total,) = rollout.require("ha_dw", "total")
        present = total[~total.isnan()]
        if not len(present):
            return state, advantages
        if present.min() < 0 or present.max() > 1:
            raise UsageError(
                f"ha_dw: rewards must be shares of right completions in [0, 1], got {present.min().item():g} to "
                f"{present.max().item():g}; remove ha_dw for other rewards"
            )
        accuracy = present.double().mean().item()
        gap = groups(total, rollout.group).mean - (state["anchors"][-1] if state["anchors"] else accuracy)
        gap = gap if advantages.dim() == 1 else gap[:, None]
        changed = advantages * (lam * torch.exp(-advantages.sign() * gap))
        anchors = append_accuracy(state["anchors"], accuracy, eta, window)
        return {"anchors": anchors}, changed.to(advantages.dtype)

    return Transform("advantage", change, stage=1, start={"anchors": []})


def append_accuracy(anchors: list[float], accuracy: float, eta: float, window: int) -> list[float]:
    """Append the next value of the running accuracy C to `anchors`; return the last `window` values."""
    if not anchors:
        return [accuracy]
    spread = torch.tensor(anchors, dtype=torch.float64).std().item() if len(anchors) > 1 else 1.0
    step = eta * spread
    return [*anchors, (1 - step) * anchors[-1] + step * accuracy][-window:]
