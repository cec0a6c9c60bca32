"""The clipped policy loss in PyTorch: all sequences at once."""

import torch
from jaxtyping import Float
from torch import Tensor

from .reference import ClipRule, PolicyLoss, per_token, tokens_of

LANES = 64  # a sequence's sum on a CPU is that many smaller ones


def eager(
    logprob: Tensor, old: Tensor, advantage: Tensor, weight: Tensor, bounds: Tensor,
    *, rule: ClipRule, mask: Tensor | None, base: Tensor | None, beta: float, kl: str, corrected: bool,
) -> PolicyLoss:  # fmt: skip
    """Compute `policy_loss` in PyTorch for all sequences at once."""
    tokens = tokens_of(logprob, old, advantage, weight, mask, base)
    apart = torch.stack([tokens.logprob - tokens.old, tokens.live.to(tokens.logprob.dtype)], 1)
    drift, number = _by_sequence(apart, bounds).unbind(1)
    drift = (drift / number.clamp_min(1)).repeat_interleave(bounds.diff(), output_size=len(logprob))
    share, facts = per_token(tokens, drift, rule, beta, kl, corrected)
    return PolicyLoss(share.sum(), _by_sequence(facts, bounds))


def _by_sequence(values: Float[Tensor, "T C"], bounds: Tensor) -> Float[Tensor, "S C"]:
    """Sum values over each sequence in several partial sums, because a single running sum would lose precision."""
    (T, C), S = values.shape, len(bounds) - 1
    sequence = torch.repeat_interleave(bounds.diff(), output_size=T)
    lane = sequence * LANES + torch.arange(T, device=values.device) % LANES
    return values.new_zeros(S * LANES, C).index_add(0, lane, values).view(S, LANES, C).sum(1)
