"""Reference implementation of a linear head's log-probabilities, with all logits in memory."""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..dispatch import wide
from .eager import IGNORED


class LinearLogprob(NamedTuple):
    """Per row: log π(target) and the entropy of π, in nats; both 0 if the target is ignored."""

    logprob: Float[Tensor, " N"]
    entropy: Float[Tensor, " N"]


def reference(
    hidden: Float[Tensor, "N D"], weight: Float[Tensor, "V D"], target: Int[Tensor, " N"], *,
    bias: Float[Tensor, " V"] | None = None, temperature: float = 1.0, softcap: float | None = None,
    chunk: int | None = None,
) -> LinearLogprob:  # fmt: skip
    """Compute `linear_logprob` in plain PyTorch, with all logits [N, V] in memory. `chunk` has no effect."""
    dtype = wide(hidden.dtype)
    z = hidden.to(dtype) @ weight.to(dtype).T
    z = z if bias is None else z + bias.to(dtype)
    z = z if softcap is None else softcap * torch.tanh(z / softcap)
    logp = (z / temperature).log_softmax(1)
    target_logprob = logp.gather(1, target.clamp_min(0)[:, None]).squeeze(1)
    entropy = -(logp.exp() * logp).sum(1)
    ignored = target == IGNORED
    return LinearLogprob(target_logprob.masked_fill(ignored, 0), entropy.masked_fill(ignored, 0))
