"""Clipped policy loss of packed sequences from log-probabilities and advantages, with gradient and sums for metrics."""

import math
from typing import Any

from jaxtyping import Bool, Float, Int
from torch import Tensor

from ..dispatch import backend_of, check_bounds
from .eager import eager
from .reference import DIVERGENCES, LEVELS, THROUGH, ClipRule, PolicyLoss, divergence, reference

__all__ = ["ClipRule", "PolicyLoss", "divergence", "policy_loss", "reference"]


def policy_loss(
    logprob: Float[Tensor, " T"],
    old: Float[Tensor, " T"],
    advantage: Float[Tensor, " T"],
    weight: Float[Tensor, " T"],
    bounds: Int[Tensor, " _"],
    *,
    rule: ClipRule,
    mask: Bool[Tensor, " T"] | None = None,
    base: Float[Tensor, " T"] | None = None,
    beta: float = 0.0,
    kl: str = "k3",
    corrected: bool = False,
) -> PolicyLoss:
    """Compute Σ_t w_t (L_t + β KL_t) over packed sequences; sequence s is [bounds[s] : bounds[s + 1]] of every tensor.

    L = -clamp(r, bounds by the sign of A) A       PPO: Schulman et al. 2017, arXiv:1707.06347, eq. 7
    L = -sg(clamp(r)) A log π                      CISPO: MiniMax 2025, arXiv:2506.13585
    r of a sequence: e^{mean_t (log π - log old)}  GSPO and GSPO-token: Zheng et al. 2025, arXiv:2507.18071

    r = π / old is the probability ratio, A the advantage, w the `weight`, sg the stop-gradient; the README derives the
    clip rule. Where r equals a bound, the gradient still flows. `weight` contains the normalisation (1 / (N length), 1
    / Σ tokens, ...); the loss is a plain sum. `base` are the reference policy's log-probabilities. KL_t is also
    measured for β = 0. `corrected` multiplies KL_t by π_t / old_t: the mean is then over tokens sampled from π, and
    k3 has the gradient of KL(π | base) (DeepSeek-V3.2, arXiv:2512.02556). If tensors are [N, L], each row is a
    sequence with a mask. Tokens with mask 0 or weight 0 are neither read nor counted, and their gradient is exactly 0.
    Log-ratios beyond ±20 are clamped without a gradient, as in verl, also if the rule has no bound.

    The result is float32 (float64 for float64 inputs). Only `logprob` has a gradient, which the forward pass computes.
    `bounds` increases from 0 to T. This is not checked on a GPU, since the check would synchronise.
    """
    _check(logprob, (old, advantage, weight, base, mask), bounds, rule, beta, kl)
    chosen: dict[str, Any] = {"rule": rule, "mask": mask, "base": base, "beta": beta, "kl": kl, "corrected": corrected}
    match backend_of(logprob):
        case "reference":
            return reference(logprob, old, advantage, weight, bounds, **chosen)
        case "eager":
            return eager(logprob, old, advantage, weight, bounds, **chosen)
        case "triton":
            from .triton import fused

            return fused(logprob, old, advantage, weight, bounds, **chosen)


def _check(
    logprob: Tensor, others: tuple[Tensor | None, ...], bounds: Tensor, rule: ClipRule, beta: float, kl: str
) -> None:
    _, _, _, base, _ = others
    for low, high in (rule.positive, rule.negative):
        if not 0 <= low <= high:
            raise ValueError(f"policy_loss: ratio bounds must be 0 <= low <= high, got {(low, high)}; inf is no bound")
    words = {"rule.through": (rule.through, THROUGH), "rule.level": (rule.level, LEVELS), "kl": (kl, DIVERGENCES)}
    for name, (word, choices) in words.items():
        if word not in choices:
            raise ValueError(f"policy_loss: {name} must be one of {', '.join(choices)}, got {word!r}")
    if not math.isfinite(beta):
        raise ValueError(f"policy_loss: beta must be a finite number, got {beta}")
    if beta != 0 and base is None:
        raise ValueError(
            f"policy_loss: beta is {beta}, but the reference log-probabilities are missing; pass base or beta=0.0"
        )
    lengths = [len(other) for other in others if other is not None]
    if any(length != len(logprob) for length in lengths):
        raise ValueError(f"policy_loss: logprob has {len(logprob)} tokens, the other tensors {lengths}; use one length")
    check_bounds("policy_loss", bounds, len(logprob))
