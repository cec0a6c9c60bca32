"""Reference implementation of the clipped policy loss, one sequence at a time, and its formulas per token."""

import math
from itertools import pairwise
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ..dispatch import wide

THROUGH = ("ratio", "logprob")

LEVELS = ("token", "sequence", "sequence-token")

DIVERGENCES = ("k1", "k2", "k3", "forward")

FARTHEST = 20.0  # of a log-ratio: e^20 is 4.9e8, and from e^89 on float32 has no number for the ratio


class ClipRule(NamedTuple):
    """Clipping of the ratio r of policy to old policy: bounds by the sign of the advantage A, and where gradients flow.

    PPO, dual-clip, DAPO, GSPO, CISPO and REINFORCE are instances of this class. PPO's min(r A, clip(r) A) bounds r to
    (0, 1 + ε) where A >= 0 and to (1 - ε, inf) where A < 0; dual-clip adds an upper bound for A < 0: (1 - ε, c).
    """

    positive: tuple[float, float]
    """Lower and upper bound of r where A >= 0. A bound of 0 or inf has no effect."""
    negative: tuple[float, float]
    """Lower and upper bound of r where A < 0."""
    through: str = "ratio"
    """"ratio": L = -clamp(r) A, no gradient where r is clipped.

    "logprob": L = -sg(clamp(r)) A log π, sg = stop-gradient.
    """
    level: str = "token"
    """"token": r_t = π_t / old_t; "sequence": r = (Π_t r_t)^(1/n) for all n tokens of a sequence (GSPO);
    "sequence-token": the value of "sequence" with the gradient of r_t (GSPO-token)."""


class PolicyLoss(NamedTuple):
    """The loss, differentiable with respect to the log-probabilities only, and sums per sequence for metrics."""

    total: Float[Tensor, ""]
    """Σ_t w_t (L_t + β KL_t) over all tokens, with weights w_t."""
    sums: Float[Tensor, "S 5"]
    """Per sequence: Σ w L, Σ KL (without w and β), number of clipped tokens, number of tokens, Σ r."""


def reference(
    logprob: Float[Tensor, " T"], old: Float[Tensor, " T"], advantage: Float[Tensor, " T"], weight: Float[Tensor, " T"],
    bounds: Int[Tensor, " _"], *, rule: ClipRule, mask: Bool[Tensor, " T"] | None = None,
    base: Float[Tensor, " T"] | None = None, beta: float = 0.0, kl: str = "k3", corrected: bool = False,
) -> PolicyLoss:  # fmt: skip
    """Compute `policy_loss` in plain PyTorch, one sequence at a time."""
    tokens = tokens_of(logprob, old, advantage, weight, mask, base)
    total, sums = tokens.logprob.sum() * 0, [tokens.logprob.new_zeros(0, 5)]
    for first, end in pairwise(bounds.tolist()):
        sequence = Tokens(*(None if token is None else token[first:end] for token in tokens))
        drift = (sequence.logprob - sequence.old).sum() / sequence.live.sum().clamp_min(1)
        share, facts = per_token(sequence, drift.expand(end - first), rule, beta, kl, corrected)
        total = total + share.sum()
        sums.append(facts.sum(0, keepdim=True))
    return PolicyLoss(total, torch.cat(sums))


def divergence(kind: str, logprob: Float[Tensor, " T"], base: Float[Tensor, " T"]) -> Float[Tensor, " T"]:
    """Estimate the KL divergence between the policy π and the reference policy for every token, in nats.

    With d = log base - log π and tokens sampled from π (Schulman, "Approximating KL divergence", 2020):

        k1       -d                  mean KL(π | base), may be negative; its gradient has mean 0
        k2       d² / 2              mean near KL(π | base), never negative; its gradient's mean is that of KL(π | base)
        k3       e^d - d - 1         mean KL(π | base), never negative; its gradient's mean is that of KL(base | π)
        forward  d e^d - (e^d - 1)   mean KL(base | π), never negative (RAPO, arXiv:2510.03865): e^d k3 at -d

    These means hold for tokens sampled from the current policy; for an older policy, see `corrected` of `policy_loss`.
    """
    gap = base - logprob
    match kind:
        case "k1":
            return -gap
        case "k2":
            return gap.square() / 2
        case "k3":
            return gap.expm1() - gap
        case "forward":
            return gap.exp() * ((-gap).expm1() + gap)
    raise ValueError(f"policy_loss: kl must be one of {', '.join(DIVERGENCES)}, got {kind!r}")


def log_bounds(rule: ClipRule) -> tuple[float, float, float, float]:
    """Return log(low), log(high) for A >= 0 and for A < 0, clamped to ±20 so that no ratio overflows."""
    low, high, low_negative, high_negative = (
        min(max(math.log(bound), -FARTHEST), FARTHEST) if bound > 0 else -FARTHEST
        for bound in (*rule.positive, *rule.negative)
    )
    return low, high, low_negative, high_negative


class Tokens(NamedTuple):
    """Arguments of `policy_loss` in the dtype of the sums; only `logprob` has a gradient. Masked tokens are 0."""

    logprob: Float[Tensor, " T"]
    old: Float[Tensor, " T"]
    advantage: Float[Tensor, " T"]
    weight: Float[Tensor, " T"]
    live: Bool[Tensor, " T"]
    base: Float[Tensor, " T"] | None


def tokens_of(
    logprob: Tensor, old: Tensor, advantage: Tensor, weight: Tensor, mask: Tensor | None, base: Tensor | None
) -> Tokens:
    """Convert the arguments of `policy_loss`: masked values, even NaN, become 0; only `logprob` keeps its gradient."""
    live = weight.detach() != 0
    live = live if mask is None else live & mask

    def detached(tensor: Tensor) -> Tensor:
        return torch.where(live, tensor.to(wide(logprob.dtype)), 0)

    old, advantage, weight = (detached(tensor.detach()) for tensor in (old, advantage, weight))
    return Tokens(detached(logprob), old, advantage, weight, live, None if base is None else detached(base.detach()))


def per_token(
    tokens: Tokens, drift: Float[Tensor, " T"], rule: ClipRule, beta: float, kl: str, corrected: bool
) -> tuple[Float[Tensor, " T"], Float[Tensor, "T 5"]]:
    """Return w (L + β KL) and the terms of `PolicyLoss.sums` per token; `drift` is the sequence's mean log-ratio."""
    log_ratio = torch.where(tokens.live, _at_level(tokens.logprob - tokens.old, drift, rule.level), 0)
    low, high, low_negative, high_negative = log_bounds(rule)
    gain = tokens.advantage >= 0
    low, high = log_ratio.new_tensor([[low_negative, low], [high_negative, high]])[:, gain.long()]
    ratio = log_ratio.clamp(low, high).exp()
    through = ratio if rule.through == "ratio" else ratio.detach() * tokens.logprob
    loss = -through * tokens.advantage * tokens.weight
    gap = torch.zeros_like(loss) if tokens.base is None else divergence(kl, tokens.logprob, tokens.base)
    gap = gap * bounded_ratio(tokens.logprob - tokens.old) if corrected else gap
    clipped = (log_ratio < low) | (log_ratio > high)
    r = bounded_ratio(log_ratio) * tokens.live
    facts = torch.stack([loss, gap, clipped & tokens.live, tokens.live, r], 1).detach()
    return loss if beta == 0 else loss + beta * tokens.weight * gap, facts


def bounded_ratio(log_ratio: Float[Tensor, " T"]) -> Float[Tensor, " T"]:
    """Return e^x of log-ratios x within ±20, and e^±20 without a gradient beyond this range."""
    return log_ratio.clamp(-FARTHEST, FARTHEST).exp()


def _at_level(log_ratio: Float[Tensor, " T"], drift: Float[Tensor, " T"], level: str) -> Float[Tensor, " T"]:
    """Return the log-ratio of every token at `level`: its own ("token"), or its sequence's mean `drift`."""
    match level:
        case "sequence":
            return drift
        case "sequence-token":
            return drift.detach() + (log_ratio - log_ratio.detach())
        case _:
            return log_ratio
