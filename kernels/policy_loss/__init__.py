"""Log-probabilities and advantages of packed sequences -> a clipped policy loss, its gradient, and sums for metrics."""

import math
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ..dispatch import way, wide
from ..packed import bounds_of, check_bounds

THROUGH = ("ratio", "logprob")
LEVELS = ("token", "sequence", "sequence-token")
DIVERGENCES = ("k1", "k2", "k3", "forward")
FARTHEST = 20.0  # of a log-ratio: e^20 is 4.9e8, and from e^89 on float32 has no number for the ratio
LANES = 64  # a sequence's sum on a CPU is that many smaller ones

_PPO = ((0.0, 1.2), (0.8, math.inf), "ratio")
CASES = [
    {"lengths": [1], "rule": (*_PPO, "token")},
    {"lengths": [17, 1, 0, 129], "rule": (*_PPO, "token"), "mask": True, "beta": 0.1, "kl": "k3"},
    {"lengths": [1025, 3], "rule": (*_PPO, "token"), "beta": 0.3, "kl": "forward"},
    {"lengths": [17, 5], "rule": (*_PPO, "token"), "mask": True, "beta": 0.3, "kl": "k3", "corrected": True},
    {"lengths": [17, 0, 5], "rule": ((0.0, 1.02), (0.98, 3.0), "ratio", "sequence"), "mask": True},
    {"lengths": [17, 1100], "rule": ((0.0, 1.02), (0.98, 3.0), "ratio", "sequence"), "beta": 0.1, "kl": "k1"},
    {
        "lengths": [17],
        "rule": ((0.0, 1.02), (0.98, 3.0), "ratio", "sequence"),
        "beta": 0.1,
        "kl": "k1",
        "corrected": True,
    },
    {"lengths": [17, 5, 30], "rule": ((0.0, 1.02), (0.98, 3.0), "ratio", "sequence-token"), "kl": "k2"},
    {"lengths": [129, 2], "rule": ((0.0, 1.3), (0.0, 1.3), "logprob", "token"), "mask": True, "beta": 0.2, "kl": "k2"},
    {"lengths": [17, 2], "rule": ((0.99, 1.01), (0.99, 1.01), "logprob", "sequence")},
    {"lengths": [17], "rule": ((1.0, 1.0), (1.0, 1.0), "logprob", "token")},
]


class ClipRule(NamedTuple):
    """Within which bounds the ratio r of the policy to the old one counts, and where the gradient flows.

    One rule is PPO, dual-clip, DAPO, GSPO, CISPO, REINFORCE: PPO's min(r A, clip(r) A) is one-sided, (0, 1 + ε) where
    A >= 0 and (1 - ε, inf) where A < 0; a second bound there, (1 - ε, c), is dual-clip's.
    """

    positive: tuple[float, float]
    """Bounds of r where A >= 0; 0 and inf are none."""
    negative: tuple[float, float]
    """Bounds of r where A < 0."""
    through: str = "ratio"
    """"ratio": L = -clamp(r) A, no gradient where r is out of bounds; "logprob": L = -sg(clamp(r)) A log π."""
    level: str = "token"
    """"token": r_t = π_t / old_t; "sequence": r = (Π_t r_t)^(1/n) for all n tokens of a sequence (GSPO);
    "sequence-token": that value with the gradient of r_t (GSPO-token)."""


class PolicyLoss(NamedTuple):
    """The loss, differentiable with respect to the log-probabilities alone, and what metrics are made of."""

    total: Float[Tensor, ""]
    """Σ_t w_t (L_t + β KL_t)."""
    sums: Float[Tensor, "S 5"]
    """Of every sequence: Σ w L, Σ KL (neither weighted nor scaled), tokens out of bounds, tokens, Σ r."""


def reference(
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
    """The definition, sequence by sequence."""
    tokens = _tokens(logprob, old, advantage, weight, mask, base)
    total, sums = tokens.logprob.sum() * 0, [tokens.logprob.new_zeros(0, 5)]
    for first, end in pairwise(bounds.tolist()):
        sequence = _Tokens(*(None if token is None else token[first:end] for token in tokens))
        drift = (sequence.logprob - sequence.old).sum() / sequence.live.sum().clamp_min(1)
        share, facts = _per_token(sequence, drift.expand(end - first), rule, beta, kl, corrected)
        total = total + share.sum()
        sums.append(facts.sum(0, keepdim=True))
    return PolicyLoss(total, torch.cat(sums))


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
    """Σ_t w_t (L_t + β KL_t) over packed sequences; sequence s is [bounds[s] : bounds[s + 1]] of every tensor.

    L = -clamp(r, bounds by the sign of A) A       PPO: Schulman et al. 2017, arXiv:1707.06347, eq. 7
    L = -sg(clamp(r)) A log π                      CISPO: MiniMax 2025, arXiv:2506.13585
    r of a sequence: e^{mean_t (log π - log old)}  GSPO and GSPO-token: Zheng et al. 2025, arXiv:2507.18071

    The clip rule is derived in the README. Where r lies exactly on a bound the gradient still flows. `weight` carries
    the aggregation (1 / (N length), 1 / Σ tokens, 1 / (N longest), ...): no denominator is made up here. `base` is what
    `divergence` compares the policy with; it needs no β to be measured. `corrected` multiplies KL_t by the token's own
    ratio π_t / old_t: tokens of an older policy then have the present one's mean, and k3 the gradient of KL(π | base)
    (DeepSeek-V3.2, arXiv:2512.02556). Rows [N, L] are sequences of length L with a mask. A token that is masked or has
    weight 0 is no token: not read, not counted, its gradient exactly 0.

    A log-ratio counts within ±20, as in verl: beyond that the ratio is e^±20 and has no gradient, also where the rule
    has no bound (PPO where A < 0), so that no ratio overflows.

    The result is float32 (float64 for float64); only `logprob` gets a gradient, formed along with the loss. Bounds
    rise from 0 to T; they are not checked on a GPU, which would wait for it.
    """
    _check(logprob, (old, advantage, weight, base, mask), bounds, rule, beta, kl)
    chosen: dict[str, Any] = {"rule": rule, "mask": mask, "base": base, "beta": beta, "kl": kl, "corrected": corrected}
    match way(logprob):
        case "reference":
            return reference(logprob, old, advantage, weight, bounds, **chosen)
        case "eager":
            return _all_at_once(logprob, old, advantage, weight, bounds, **chosen)
        case "triton":
            from .triton import fused

            return fused(logprob, old, advantage, weight, bounds, **chosen)


def divergence(kind: str, logprob: Float[Tensor, " T"], base: Float[Tensor, " T"]) -> Float[Tensor, " T"]:
    """An estimate, token by token, of how far the policy π is from the base policy; nats.

    With d = log base - log π and tokens drawn from π (Schulman, "Approximating KL divergence", 2020):

        k1       -d                  mean KL(π | base), may be negative; its gradient has mean 0
        k2       d² / 2              mean near KL(π | base), never negative; its gradient's mean is that of KL(π | base)
        k3       e^d - d - 1         mean KL(π | base), never negative; its gradient's mean is that of KL(base | π)
        forward  d e^d - (e^d - 1)   mean KL(base | π), never negative (RAPO, arXiv:2510.03865): e^d k3 at -d

    Means hold for tokens of the present policy; see `corrected` of `policy_loss` for those of an older one.
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
    raise ValueError(f"policy_loss: kl is one of {', '.join(DIVERGENCES)}, got {kind!r}")


def log_bounds(rule: ClipRule) -> tuple[float, float, float, float]:
    """Logarithms of low and high where A >= 0, of low and high where A < 0; within ±20, so that no ratio overflows."""
    low, high, low_negative, high_negative = (
        min(max(math.log(bound), -FARTHEST), FARTHEST) if bound > 0 else -FARTHEST
        for bound in (*rule.positive, *rule.negative)
    )
    return low, high, low_negative, high_negative


class _Tokens(NamedTuple):
    """The arguments in the dtype of the sums, all but logprob constants; 0 where a token is not live."""

    logprob: Float[Tensor, " T"]
    old: Float[Tensor, " T"]
    advantage: Float[Tensor, " T"]
    weight: Float[Tensor, " T"]
    live: Bool[Tensor, " T"]
    base: Float[Tensor, " T"] | None


def _tokens(
    logprob: Tensor, old: Tensor, advantage: Tensor, weight: Tensor, mask: Tensor | None, base: Tensor | None
) -> _Tokens:
    live = weight.detach() != 0
    live = live if mask is None else live & mask

    def detached(tensor: Tensor) -> Tensor:
        return torch.where(live, tensor.to(wide(logprob.dtype)), 0)

    old, advantage, weight = (detached(tensor.detach()) for tensor in (old, advantage, weight))
    return _Tokens(detached(logprob), old, advantage, weight, live, None if base is None else detached(base.detach()))


def _per_token(
    tokens: _Tokens, drift: Float[Tensor, " T"], rule: ClipRule, beta: float, kl: str, corrected: bool
) -> tuple[Float[Tensor, " T"], Float[Tensor, "T 5"]]:
    """w (L + β KL), and what `PolicyLoss.sums` adds up; `drift` is the mean log-ratio of a token's sequence."""
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
    """Return e^x of log-ratios x within ±20, and e^±20 without a gradient beyond."""
    return log_ratio.clamp(-FARTHEST, FARTHEST).exp()


def _at_level(log_ratio: Float[Tensor, " T"], drift: Float[Tensor, " T"], level: str) -> Float[Tensor, " T"]:
    match level:
        case "sequence":
            return drift
        case "sequence-token":
            return drift.detach() + (log_ratio - log_ratio.detach())
        case _:
            return log_ratio


def _all_at_once(
    logprob: Tensor, old: Tensor, advantage: Tensor, weight: Tensor, bounds: Tensor,
    *, rule: ClipRule, mask: Tensor | None, base: Tensor | None, beta: float, kl: str, corrected: bool,
) -> PolicyLoss:  # fmt: skip
    """The definition, for all sequences at once."""
    tokens = _tokens(logprob, old, advantage, weight, mask, base)
    apart = torch.stack([tokens.logprob - tokens.old, tokens.live.to(tokens.logprob.dtype)], 1)
    drift, number = _by_sequence(apart, bounds).unbind(1)
    drift = (drift / number.clamp_min(1)).repeat_interleave(bounds.diff(), output_size=len(logprob))
    share, facts = _per_token(tokens, drift, rule, beta, kl, corrected)
    return PolicyLoss(share.sum(), _by_sequence(facts, bounds))


def _by_sequence(values: Float[Tensor, "T C"], bounds: Tensor) -> Float[Tensor, "S C"]:
    """Sums over every sequence, in lanes first: thousands of tokens one by one would lose digits."""
    (T, C), S = values.shape, len(bounds) - 1
    sequence = torch.repeat_interleave(bounds.diff(), output_size=T)
    lane = sequence * LANES + torch.arange(T, device=values.device) % LANES
    return values.new_zeros(S * LANES, C).index_add(0, lane, values).view(S, LANES, C).sum(1)


def _check(
    logprob: Tensor, others: tuple[Tensor | None, ...], bounds: Tensor, rule: ClipRule, beta: float, kl: str
) -> None:
    _, _, _, base, _ = others
    for low, high in (rule.positive, rule.negative):
        if not 0 <= low <= high:
            raise ValueError(f"policy_loss: bounds of a ratio are 0 <= low <= high, got {(low, high)}; inf is no bound")
    words = {"rule.through": (rule.through, THROUGH), "rule.level": (rule.level, LEVELS), "kl": (kl, DIVERGENCES)}
    for name, (word, known) in words.items():
        if word not in known:
            raise ValueError(f"policy_loss: {name} is one of {', '.join(known)}, got {word!r}")
    if not math.isfinite(beta):
        raise ValueError(f"policy_loss: beta is a finite number, got {beta}")
    if beta != 0 and base is None:
        raise ValueError(f"policy_loss: beta is {beta}, but there is no base to stay near; pass base or beta=0.0")
    lengths = [len(other) for other in others if other is not None]
    if any(length != len(logprob) for length in lengths):
        raise ValueError(f"policy_loss: logprob has {len(logprob)} tokens, the other tensors {lengths}; pack all alike")
    check_bounds("policy_loss", bounds, len(logprob))


def example(case: dict[str, Any], dtype: torch.dtype, device: str = "cpu") -> dict[str, Any]:
    """Arguments of the sizes in `case`, always the same ones; what is masked is NaN, every seventh weight is 0."""
    generator = torch.Generator().manual_seed(0)
    lengths = torch.tensor(case["lengths"])
    T = int(lengths.sum())

    def draw() -> Tensor:
        return torch.randn(T, generator=generator, dtype=torch.float64)

    logprob = -draw().abs()
    tensors = {"logprob": logprob, "old": logprob + 0.3 * draw(), "advantage": draw(), "weight": draw().abs() / T}
    tensors["weight"][6::7] = 0
    tensors |= {"base": logprob + 0.5 * draw()} if "kl" in case else {}
    mask = {"mask": torch.arange(T) % 5 != 3} if case.get("mask") else {}
    if mask:
        tensors = {name: tensor.masked_fill(~mask["mask"], torch.nan) for name, tensor in tensors.items()}
    placed = {name: tensor.to(dtype=dtype, device=device) for name, tensor in tensors.items()}
    chosen = {name: case[name] for name in ("beta", "kl", "corrected") if name in case} | {
        "rule": ClipRule(*case["rule"])
    }
    return (
        placed | {name: tensor.to(device) for name, tensor in {"bounds": bounds_of(lengths), **mask}.items()} | chosen
    )
